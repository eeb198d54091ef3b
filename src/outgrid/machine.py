"""The machine as a value: what a plan may count on, read from the kernel's own tables."""

import os
import platform
import re
import resource
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from outgrid.errors import UsageError

__all__ = [
    "SHARED_BYTES",
    "Accelerator",
    "Machine",
    "Strain",
    "anonymous_bytes",
    "describe_machine",
    "device_bytes",
    "limit_on_memory",
    "memory_limit_bytes",
    "peak_memory_bytes",
    "reset_peak_memory",
    "strain",
    "wanted_compiler",
]

# Rates assumed until they are measured. One core of a current server streams about 14 GB/s from
# DRAM, a single NVMe flash drive about 1.5 GB/s with large direct requests. They only steer the
# choice of depth and the predicted seconds, never what is computed.
ASSUMED_MEMORY_BANDWIDTH_PER_CORE = 14e9
ASSUMED_READ_BANDWIDTH = 1.5e9
ASSUMED_WRITE_BANDWIDTH = 1.5e9
ASSUMED_MIXED_BANDWIDTH = 1.5e9
ASSUMED_FLUSH_SECONDS = 5e-3
ASSUMED_L2_BANDWIDTH = 80e9
ASSUMED_L3_BANDWIDTH = 25e9

UNLIMITED_BYTES = 1 << 62
SHARED_BYTES = 227 << 10
"""What a block of threads may share on an H100 or H200; 163 KiB on an A100, 99 on smaller cards."""

# A core of a shared cache counts on no more than this: a large one has many neighbours.
_ASSUMED_L3_SHARE_BYTES = 8 << 20

# Cache sizes assumed where sysfs does not tell (some virtual machines hide them).
_ASSUMED_L2_BYTES = 1 << 20
_ASSUMED_L3_BYTES = 8 << 20


class Network(msgspec.Struct, frozen=True):
    """What lies between two ranks: bytes per second each way, and seconds until a message comes."""

    bandwidth: float = 1e9
    latency_seconds: float = 5e-5


class Accelerator(msgspec.Struct, frozen=True):
    """A processor with memory of its own, "" where none was asked by ``name``.

    ``memory_bytes`` may be taken there. ``memory_bandwidth`` is that of its memory, ``bandwidth``
    that of copies to it, and of copies from it at the same time, in bytes per second;
    ``launch_seconds`` what the start of a kernel takes. All but the memory are assumed unless found
    out. Threads of a block share up to ``shared_bytes``.
    """

    memory_bytes: int
    name: str = ""
    memory_bandwidth: float = 1e12
    bandwidth: float = 20e9
    launch_seconds: float = 4e-5
    shared_bytes: int = SHARED_BYTES


class Machine(msgspec.Struct, frozen=True):
    """What a plan needs to know about a machine.

    `memory_bytes` is what this process may use: the smaller of physical memory and the control
    group's limit. `l2_bytes` is per core, `l3_bytes` the whole of one shared cache. Bandwidths are
    in bytes per second, of all cores together for memory and of the scratch tier for reads and
    writes; `measured` says whether they were measured or assumed. `mixed_bandwidth` counts the
    bytes of both where as much is read as written at once. `flush_seconds` is what it takes to
    make nothing durable, and to say so in a small file; each byte that was written takes
    `flushing_seconds` more, in which a disk does nothing else: where that is much, it keeps what
    it is given in a cache. Each byte that is moved keeps a processor from computing for
    `moving_seconds`, by its own work and by that of the host of a virtual disk.

    `l2_effective_bytes` and `l3_effective_bytes` are the working sets that one core keeps near
    `l2_bandwidth` and `l3_bandwidth` (bytes per second and core) while all others work as well; the
    second is kept by both caches together, so it is never less than the first.

    `lines`: direct transfers of the scratch tier may begin at any line of memory, 64 bytes; else
    those that do not begin at whole sectors are copied.
    """

    cores: int
    memory_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bandwidth: float
    read_bandwidth: float
    write_bandwidth: float
    measured: bool
    cpu: str
    kernel: str
    compiler: str
    python: str
    mixed_bandwidth: float = ASSUMED_MIXED_BANDWIDTH
    flush_seconds: float = ASSUMED_FLUSH_SECONDS
    l2_effective_bytes: int = _ASSUMED_L2_BYTES
    l3_effective_bytes: int = _ASSUMED_L2_BYTES + _ASSUMED_L3_SHARE_BYTES
    l2_bandwidth: float = ASSUMED_L2_BANDWIDTH
    l3_bandwidth: float = ASSUMED_L3_BANDWIDTH
    lines: bool = False
    flushing_seconds: float = 0.0
    moving_seconds: float = 0.0

    @property
    def summary(self) -> str:
        """Cores, kernel and compiler in a line."""
        return f"{self.cores} cores of {self.cpu}, Linux {self.kernel}, {self.compiler}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Machine":
        """Inverse of `to_dict`. Raises UsageError when a key is missing or unknown."""
        names = {*cls.__struct_fields__}
        if data.keys() != names:
            odd = sorted(data.keys() ^ names)
            raise UsageError(f"not a description of a machine: {', '.join(odd)} missing or unknown")
        return cls(**data)


def describe_machine(proc: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> Machine:
    """The machine this process runs on; reads `proc` and `sysfs` only, measures nothing."""
    cores = _usable_cores(proc)
    l2_bytes = _cache_bytes(sysfs, level=2) or _ASSUMED_L2_BYTES
    l3_bytes = _cache_bytes(sysfs, level=3) or _ASSUMED_L3_BYTES
    return Machine(
        cores=cores,
        memory_bytes=memory_limit_bytes(proc),
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        memory_bandwidth=ASSUMED_MEMORY_BANDWIDTH_PER_CORE * cores,
        read_bandwidth=ASSUMED_READ_BANDWIDTH,
        write_bandwidth=ASSUMED_WRITE_BANDWIDTH,
        measured=False,
        cpu=_cpu_name(proc),
        kernel=platform.release(),
        compiler=_compiler_path(),
        python=platform.python_version(),
        l2_effective_bytes=l2_bytes,
        l3_effective_bytes=l2_bytes + min(l3_bytes // cores, _ASSUMED_L3_SHARE_BYTES),
    )


def memory_limit_bytes(proc: Path = Path("/proc")) -> int:
    """Bytes this process may use: physical memory, or a control group's limit where smaller."""
    limits = [_status_bytes(proc / "meminfo", "MemTotal")]
    for folder, version in _control_groups(proc, "memory"):
        text = _read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def limit_on_memory(
    given: str | float | None, processes: int = 1, there_bytes: int | None = None
) -> str | int:
    """What `given` says of the memory of each of `processes` on this host, as a size.

    Left out it is half of what they may use, 0.5 or "50%" that share of it; anything else stays as
    it is. On another host they may use ``there_bytes``. Raises UsageError.
    """
    share = 0.5 if given is None else given
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            share = float(given.strip()[:-1]) / 100
        except ValueError:
            raise UsageError(f'memory = {given!r} is not a share; write "50%" or 0.5') from None
    if not isinstance(share, float):
        return share
    if 0 < share <= 1:
        return int((there_bytes or memory_limit_bytes()) * share) // processes
    if share > 1 and share.is_integer() and not isinstance(given, str):
        return int(share)
    raise UsageError(
        f"memory = {given}: a share of what the process may use is above 0 and at most 1, such as"
        ' 0.5; a size has a unit, such as "1.5GiB"'
    )


def anonymous_bytes(proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes that this process may still take: in memory, and beyond it in swap.

    Of a control group its limits count, of version 1 that of memory and swap together.
    """
    memory = _status_bytes(proc / "meminfo", "MemAvailable")
    swap = _status_bytes(proc / "meminfo", "SwapFree")
    for folder, version in _control_groups(proc, "memory"):
        if version == 2:
            most = _number(folder / "memory.max")
            beyond = _number(folder / "memory.swap.max")
        else:
            most = _number(folder / "memory.limit_in_bytes")
            both = _number(folder / "memory.memsw.limit_in_bytes")
            beyond = None if both is None or most is None else both - most
            if _read(folder / "memory.swappiness") == "0":
                beyond = 0
        # What a group holds of the page cache is given up for memory that is asked for.
        memory = memory if most is None else min(memory, most)
        swap = swap if beyond is None else min(swap, beyond)
    return memory, swap


def peak_memory_bytes(proc: Path = Path("/proc")) -> int:
    """Largest resident memory of this process so far, or since `reset_peak_memory`."""
    return _status_bytes(proc / "self/status", "VmHWM")


def device_bytes(proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes that devices were (read, written) for this process so far; 0 where it is not told."""
    counts = dict(line.split(": ") for line in _read(proc / "self/io").splitlines() if ": " in line)
    return int(counts.get("read_bytes", 0)), int(counts.get("write_bytes", 0))


class Strain(msgspec.Struct, frozen=True):
    """What held this process up so far.

    All its threads together were ready for ``queued_seconds`` and had no processor; whoever runs
    this virtual machine took ``stolen_seconds`` of its processors. Pages had to be read from a disk
    or from swap for ``major_faults``.
    """

    queued_seconds: float = 0.0
    stolen_seconds: float = 0.0
    major_faults: int = 0

    def since(self, before: "Strain") -> "Strain":
        """What came between; threads that have ended meanwhile count for nothing."""
        return Strain(
            max(0.0, self.queued_seconds - before.queued_seconds),
            max(0.0, self.stolen_seconds - before.stolen_seconds),
            self.major_faults - before.major_faults,
        )


def strain(proc: Path = Path("/proc")) -> Strain:
    """What held this process up so far; 0 where this kernel does not tell."""
    threads = proc / "self/task"
    names = os.listdir(threads) if threads.is_dir() else []
    queued = [_read(f"{threads}/{name}/schedstat").split() for name in names]
    stolen = _read(proc / "stat").split("\n", 1)[0].split()[8:9]
    return Strain(
        sum(int(words[1]) for words in queued if len(words) > 1) / 1e9,
        sum(map(int, stolen)) / os.sysconf("SC_CLK_TCK"),
        resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    )


def reset_peak_memory(proc: Path = Path("/proc")) -> None:
    """Let `peak_memory_bytes` count anew from what is resident now. Raises OSError if refused."""
    (proc / "self/clear_refs").write_text("5")


def _usable_cores(proc: Path) -> int:
    cores = len(os.sched_getaffinity(0))
    for folder, version in _control_groups(proc, "cpu"):
        if version == 2:
            quota, _, period = _read(folder / "cpu.max").partition(" ")
        else:
            quota, period = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _control_groups(proc: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Folders of this process's control groups, innermost first, with their version (1 or 2)."""
    mounts = list(_control_group_mounts(proc))
    for line in _read(proc / "self/cgroup").splitlines():
        if line.count(":") < 2:  # not of this kernel's making
            continue
        _, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        for root, mount_point, kind, options in mounts:
            if kind != version or (version == 1 and controller not in options):
                continue
            # Inside a container the mount may show only a part of the hierarchy, from `root` on.
            inside = os.path.relpath(path, root)
            folder = mount_point if inside.startswith("..") else mount_point / inside
            while folder != mount_point:
                yield folder, version
                folder = folder.parent
            yield mount_point, version


def _control_group_mounts(proc: Path) -> Iterator[tuple[str, Path, int, list[str]]]:
    """Mounted hierarchies: root shown, mount point, version, options that name the controllers."""
    versions = {"cgroup": 1, "cgroup2": 2}
    for line in _read(proc / "self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        shown, told = mount.split(" "), source.split(" ", 2)
        if len(shown) >= 5 and len(told) == 3 and told[0] in versions:
            yield shown[3], Path(shown[4]), versions[told[0]], told[2].split(",")


def _cache_bytes(sysfs: Path, level: int) -> int | None:
    for index in sorted((sysfs / "devices/system/cpu/cpu0/cache").glob("index*")):
        if _read(index / "level") == str(level) and _read(index / "type") != "Instruction":
            size = re.fullmatch(r"(\d+)([KM]?)", _read(index / "size"))
            if size is not None:
                return int(size[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[size[2]]
    return None


def _cpu_name(proc: Path) -> str:
    """What a processor is called; with its family and model, if a host hides its number."""
    told = _read(proc / "cpuinfo")

    def said(key: str) -> str:
        match = re.search(rf"^{key}\s*:\s*(.+)$", told, re.MULTILINE)
        return "" if match is None else str(match[1]).strip()

    names = [said(key) for key in ("model name", "Hardware", "CPU implementer")]
    name = next((name for name in names if name), platform.machine())
    family, model = said("cpu family"), said("model")
    if re.search(r"\d", name) or not (family and model):
        return name
    return f"{name} (family {family} model {model})"


def wanted_compiler() -> list[str]:
    """The command in ``$CXX``. Raises UsageError where no shell would read it."""
    text = os.environ.get("CXX", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"the compiler that $CXX names, {text!r}, is not a command: {error}"
        ) from None


def _compiler_path() -> str:
    """The C++ compiler's path, links resolved (most systems put the version there), or "".

    With the arguments that ``$CXX`` gives it.
    """
    wanted, *arguments = wanted_compiler() or [""]
    paths = (shutil.which(name) for name in ([wanted] if wanted else ["c++", "g++", "clang++"]))
    path = next((os.path.realpath(path) for path in paths if path is not None), "")
    return shlex.join([path, *arguments]) if path else ""


def _status_bytes(path: Path, key: str) -> int:
    try:
        text = path.read_text()
    except OSError as error:
        raise OSError(f"cannot read {path} ({error.strerror}): is /proc mounted?") from error
    match = re.search(rf"^{key}:\s*(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise OSError(f"{path} has no line {key}: is this Linux?")
    return int(match[1]) * 1024


def _number(path: Path) -> int | None:
    """The number in a small kernel file, None where there is none or it says that nothing limits.

    Version 1 says so by the largest number of whole pages, version 2 by "max".
    """
    text = _read(path)
    return int(text) if text.isdigit() and int(text) < UNLIMITED_BYTES else None


def _read(path: Path | str) -> str:
    """The text of a small kernel file, "" where this kernel does not have it."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
