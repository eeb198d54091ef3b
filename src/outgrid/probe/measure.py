"""One probe: memory and caches, then the scratch folder."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

from msgspec.structs import replace

from outgrid.durable import existing
from outgrid.machine import describe_machine
from outgrid.probe.caches import find_caches
from outgrid.probe.effort import Effort
from outgrid.probe.memory import measure_memory
from outgrid.probe.profile import Key, Profile
from outgrid.probe.scratch import measure_scratch


def measure_machine(scratch: Path | None, effort: Effort | None = None) -> Profile:
    """Measure this machine and the file system of `scratch` (None: of the working folder).

    Raises BuildError without a compiler, StoreError where the scratch folder fails.
    """
    effort = effort or Effort()
    described = describe_machine()
    load, begin = os.getloadavg()[0], time.perf_counter()
    memory = measure_memory(described, effort)
    caches = find_caches(memory.curve, described.l2_bytes, memory.bandwidth / described.cores)
    disk = measure_disk(scratch, effort)
    rates = {
        "memory_bandwidth": memory.bandwidth,
        "l2_effective_bytes": caches.l2_bytes,
        "l3_effective_bytes": caches.l3_bytes,
        "l2_bandwidth": caches.l2_rate,
        "l3_bandwidth": caches.l3_rate,
    }
    return replace(
        disk,
        rates=rates | disk.rates,
        working_sets=tuple((point.set_bytes, point.rate) for point in memory.curve),
        samples={"memory": memory.samples, **disk.samples},
        seconds=time.perf_counter() - begin,
        load=load,
    )


def measure_disk(scratch: Path | None, effort: Effort) -> Profile:
    """Measure the file system of `scratch` alone. Raises StoreError where it fails."""
    place = existing(scratch or Path())
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    load, begin = os.getloadavg()[0], time.perf_counter()
    described = describe_machine()
    disk = measure_scratch(place, effort, described.cores)
    return Profile(
        key=Key.of(described, place),
        rates={
            "read_bandwidth": disk.bandwidth["read"],
            "write_bandwidth": disk.bandwidth["write"],
            "mixed_bandwidth": disk.bandwidth["mixed"],
            "flush_seconds": disk.flush_seconds,
            "flushing_seconds": disk.flushing_seconds,
            "moving_seconds": disk.moving_seconds,
        },
        working_sets=(),
        samples=disk.samples,
        engine=disk.engine,
        direct=disk.direct,
        request_bytes=effort.request_bytes,
        queue_depth=effort.queue_depth,
        seconds=time.perf_counter() - begin,
        load=load,
        started=started,
    )
