import os
from pathlib import Path

import numpy as np
import pytest

from outgrid import machine
from outgrid.errors import UsageError
from outgrid.machine import (
    Machine,
    anonymous_bytes,
    describe_machine,
    memory_limit_bytes,
    peak_memory_bytes,
    reset_peak_memory,
)

KIB = 1024


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal:       8000000 kB\nMemFree: 5 kB\n")
    (folder / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast One\n")
    return folder


def place_in_control_group(proc: Path, version: int, files: dict[str, str]) -> None:
    """A hierarchy mounted beside `proc`; keys of `files` are paths inside it."""
    mount = proc.parent / "hierarchy"
    for name, text in files.items():
        path = mount / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kind, options, line = {
        1: ("cgroup", "rw,memory", "4:cpuset:/elsewhere\n3:memory:/a/b\n"),
        2: ("cgroup2", "rw", "0::/a/b\n"),
    }[version]
    (proc / "self/mountinfo").write_text(
        f"21 1 8:1 / / rw - ext4 /dev/vda rw\n35 31 0:32 / {mount} rw - {kind} cgroup {options}\n"
    )
    (proc / "self/cgroup").write_text(line)


def test_this_machine_is_described():
    machine = describe_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.memory_bytes > 1 << 20
    assert machine.l2_bytes > 0
    assert machine.l3_bytes > 0
    assert machine.memory_bandwidth > 0
    assert not machine.measured
    assert Machine.from_dict(machine.to_dict()) == machine


def test_an_odd_description_is_refused():
    found = describe_machine().to_dict()
    del found["cores"]
    with pytest.raises(UsageError, match="cores"):
        Machine.from_dict(found)


def test_without_a_control_group_physical_memory_is_the_limit(proc):
    assert memory_limit_bytes(proc) == 8000000 * KIB


def test_the_tightest_group_on_the_way_up_counts(proc):
    files = {"a/b/memory.max": "max\n", "a/memory.max": "1073741824\n", "memory.max": "2147483648"}
    place_in_control_group(proc, 2, files)
    assert memory_limit_bytes(proc) == 1 << 30


def test_the_first_version_of_control_groups_is_read_too(proc):
    place_in_control_group(proc, 1, {"a/b/memory.limit_in_bytes": "268435456\n"})
    assert memory_limit_bytes(proc) == 256 << 20


def test_a_group_without_limits_takes_no_swap_away(proc):
    meminfo = "MemTotal: 8000000 kB\nMemAvailable: 4096 kB\nSwapFree: 1024 kB\n"
    (proc / "meminfo").write_text(meminfo)
    most = str((1 << 63) - 4096)
    files = {"memory.limit_in_bytes": most, "memory.memsw.limit_in_bytes": most}
    place_in_control_group(proc, 1, files)
    (proc / "self/cgroup").write_text("3:memory:/\n")
    assert anonymous_bytes(proc) == (4096 * KIB, 1024 * KIB)
    (proc.parent / "hierarchy/memory.limit_in_bytes").write_text("2097152")
    (proc.parent / "hierarchy/memory.memsw.limit_in_bytes").write_text("2621440")
    assert anonymous_bytes(proc) == (2097152, 524288)


def test_a_limit_beyond_physical_memory_is_none(proc):
    place_in_control_group(proc, 1, {"a/b/memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory_limit_bytes(proc) == 8000000 * KIB


LIMIT_NAMES = {1: "memory.limit_in_bytes", 2: "memory.max"}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shown", ["whole", "from its root", "another part"])
def test_the_limit_of_a_container_is_what_shares_are_of(version, shown, proc, monkeypatch):
    """Its mount may show the whole hierarchy, or only what lies below a root, its own or not."""
    place_in_control_group(proc, version, {f"a/b/{LIMIT_NAMES[version]}": "268435456\n"})
    if shown != "whole":
        info = proc / "self/mountinfo"
        root = {"from its root": "/a/b", "another part": "/elsewhere"}[shown]
        info.write_text(info.read_text().replace("0:32 / ", f"0:32 {root} "))
        hierarchy = proc.parent / "hierarchy"
        (hierarchy / LIMIT_NAMES[version]).write_text("268435456\n")
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: memory_limit_bytes(proc))
    assert machine.limit_on_memory(None) == 128 << 20
    assert machine.limit_on_memory(0.25) == machine.limit_on_memory("25%") == 64 << 20
    assert machine.limit_on_memory(None, processes=2) == 64 << 20
    (proc / "meminfo").write_text(
        "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\nSwapFree: 0 kB\n"
    )
    assert anonymous_bytes(proc) == (256 << 20, 0)


def test_a_container_that_hides_all_but_the_least_is_described(proc, tmp_path, monkeypatch):
    """No /sys, no control groups, no names of processors, and one of them by affinity."""
    (proc / "cpuinfo").unlink()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    found = describe_machine(proc, tmp_path / "sys")
    assert (found.cores, found.memory_bytes) == (1, 8000000 * KIB)
    assert found.l2_bytes > 0
    assert found.l3_bytes > 0
    assert found.cpu
    assert Machine.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    "lines", ["", "no line of that kind", "3:memory", "35 31 0:32 / /x rw - cgroup2"]
)
def test_tables_of_control_groups_that_are_cut_short_limit_nothing(lines, proc, tmp_path):
    for name in ("cgroup", "mountinfo"):
        (proc / "self" / name).write_text(lines)
    assert memory_limit_bytes(proc) == 8000000 * KIB


def test_a_hidden_table_of_memory_is_named(proc):
    (proc / "meminfo").unlink()
    with pytest.raises(OSError, match=r"cannot read .*proc/meminfo.*: is /proc mounted\?"):
        memory_limit_bytes(proc)


def test_a_share_of_the_processor_counts_as_fewer_cores(proc, tmp_path):
    place_in_control_group(proc, 2, {"a/b/cpu.max": "100000 100000\n"})
    machine = describe_machine(proc, tmp_path / "sys")
    assert machine.cores == 1
    assert machine.cpu == "Fast One"


def test_a_processor_whose_number_is_hidden_has_its_family_and_model(proc, tmp_path):
    told = "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: "
    (proc / "cpuinfo").write_text(f"{told}Fast One\n")
    assert describe_machine(proc, tmp_path / "sys").cpu == "Fast One (family 26 model 2)"
    (proc / "cpuinfo").write_text(f"{told}Fast 123\n")
    assert describe_machine(proc, tmp_path / "sys").cpu == "Fast 123"


def test_cache_sizes_come_from_sysfs(proc, tmp_path):
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "32K"), ("2", "Unified", "512K"), ("3", "Unified", "16M")]
    ):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    machine = describe_machine(proc, tmp_path / "sys")
    assert (machine.l2_bytes, machine.l3_bytes) == (512 << 10, 16 << 20)


def test_peak_memory_sees_an_array_and_can_be_reset():
    reset_peak_memory()
    before = peak_memory_bytes()
    array = np.ones(8 << 20, dtype=np.float64)  # more than an allocator keeps for later
    grown = peak_memory_bytes()
    assert grown - before >= 0.9 * array.nbytes
    del array
    reset_peak_memory()
    assert peak_memory_bytes() < grown


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (None, 500),
        (0.5, 500),
        (0.25, 250),
        (1.0, 1000),
        ("25 %", 250),
        (2e9, 2_000_000_000),
        ("4G", "4G"),
        (7, 7),
    ],
)
def test_a_limit_may_be_a_share_of_what_the_process_may_use(given, limit, monkeypatch):
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: 1000)
    assert machine.limit_on_memory(given) == limit
    if given is None or isinstance(given, float):
        assert machine.limit_on_memory(given, 2) in (limit, limit // 2)


@pytest.mark.parametrize("given", [0.0, 1.5, -0.5, float("nan"), "0%", "150%", "half%"])
def test_a_share_that_is_none_is_refused_in_words(given):
    with pytest.raises(UsageError, match=r"memory = .*(share|0\.5)"):
        machine.limit_on_memory(given)


def test_a_machine_names_what_the_compiler_is_told(proc, tmp_path, monkeypatch):
    program = tmp_path / "c++"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", f"{program} -march=x86-64-v3")
    assert describe_machine(proc).compiler == f"{program} -march=x86-64-v3"
    monkeypatch.setenv("CXX", f"{tmp_path / 'none'} -O1")
    assert describe_machine(proc).compiler == ""
