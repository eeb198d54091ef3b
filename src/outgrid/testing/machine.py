"""A machine that plans are made for where a test does not care which."""

from outgrid.machine import Machine

MACHINE = Machine(
    cores=2,
    memory_bytes=16 << 30,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
    memory_bandwidth=2e10,
    read_bandwidth=1.5e9,
    write_bandwidth=1.5e9,
    measured=False,
    cpu="",
    kernel="",
    compiler="",
    python="",
)
