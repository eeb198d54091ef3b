"""Disks that are not here: loop devices, each with the rates of a class of disks.

The kernel lets so many bytes and operations per second pass to each (``blkio.throttle`` of the root
control group, version 1), in slices of a tenth of a second: of 28 operations per second 20 pass. An
operation is a request after the kernel has split it. Where it goes does not count, so that requests
in order and at places of chance take as long as each other. What a class reads ahead is set as
well. Each has a file system of its own, without a journal.

Whatever ends this process, a guard outlives it that removes devices, mounts and files. What stays
behind nevertheless, as after a guard was killed, is removed when the next disks are made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from outgrid.durable import make_folder
from outgrid.errors import ExecutionError, UsageError
from outgrid.units import suggest
from outgrid_bench.guard import guarded

__all__ = ["CLASSES", "ONE_AT_A_TIME", "Asked", "DiskClass", "emulated", "parse_disks", "refusal"]

KIB, MIB = 1 << 10, 1 << 20
GROUP = Path("/sys/fs/cgroup/blkio")
MOST_DISKS = 16
MOST_BYTES = 64 << 30  # of a disk; what is not written takes no space
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")
NAME = re.compile(r"outgrid-disk-(\d+)-(\d+)-(\d+)\.img")
# For each image: its mount, its device and the rates of that, the image.
CLEAN = """
PATH="$PATH:/usr/sbin:/sbin"
for image in "$@"; do
    umount "${image%.img}" 2>/dev/null || umount -l "${image%.img}" 2>/dev/null
    for device in $(losetup -j "$image" -O NAME -n); do
        number=$(cat "/sys/block/${device#/dev/}/dev")
        for kind in read_bps read_iops write_bps write_iops; do
            echo "$number 0" >"/sys/fs/cgroup/blkio/blkio.throttle.${kind}_device"
        done
        losetup -d "$device"
    done
    rmdir "${image%.img}" 2>/dev/null
    rm -f "$image"
done
"""
_numbers = count()


@dataclass(frozen=True, slots=True)
class DiskClass:
    """What a disk does in a second: bytes and requests that are read and written."""

    read_bytes: int
    write_bytes: int
    reads: int
    writes: int
    ahead_bytes: int = 128 * KIB

    def rate(self, kind: str, request_bytes: int) -> float:
        """Bytes per second of requests of a size, reading or writing, one at a time."""
        nbytes, requests = (
            (self.read_bytes, self.reads) if kind == "read" else (self.write_bytes, self.writes)
        )
        return min(nbytes, requests * request_bytes)


# Bytes: Midorikawa and Tan 2013, figure 1, of its three; mSATA as rated in the slides of
# Shirahata, Sato and Matsuoka; the RAID of TSUBAME 2.5 a fifth of an ioDrive2, as its figure has
# it. Requests: 200 of a hard disk, with those of SATA flash and of ioDrive2 as many times that as
# 4 KiB at places of chance are read and written in figure 2; of the others assumed.
CLASSES = {
    "hdd": DiskClass(101 * MIB, 101 * MIB, 200, 200, 1024 * KIB),
    "sata": DiskClass(418 * MIB, 260 * MIB, 500, 520, 1024 * KIB),
    "raid": DiskClass(235_000_000, 220_000_000, 10_000, 10_000, 1024 * KIB),
    "msata": DiskClass(500_000_000, 260_000_000, 5_000, 5_000),
    "iodrive2": DiskClass(1122 * MIB, 1048 * MIB, 11_400, 22_000),
    "nvme": DiskClass(3_200_000_000, 2_000_000_000, 100_000, 100_000),
    # The papers timed small requests one at a time, and the kernel counts those of all: where a
    # system has many under way, as for swap, the same flash with requests as assumed for such.
    "sata-deep": DiskClass(418 * MIB, 260 * MIB, 40_000, 40_000, 1024 * KIB),
    "iodrive2-deep": DiskClass(1122 * MIB, 1048 * MIB, 140_000, 140_000),
}
ONE_AT_A_TIME = tuple(name for name in CLASSES if not name.endswith("-deep"))


@dataclass(frozen=True, slots=True)
class Asked:
    """``count`` disks of a class, all rates of it divided by ``slower``."""

    name: str
    count: int = 1
    slower: int = 1

    @property
    def disk(self) -> DiskClass:
        """One of them."""
        whole, n = CLASSES[self.name], self.slower
        return DiskClass(
            whole.read_bytes // n,
            whole.write_bytes // n,
            max(1, whole.reads // n),
            max(1, whole.writes // n),
            whole.ahead_bytes,
        )

    @property
    def label(self) -> str:
        """A single one, as it stands in rows."""
        return self.name if self.slower == 1 else f"{self.name}/{self.slower}"


def parse_disks(text: str) -> Asked:
    """Disks as an option names them: CLASS, CLASS:COUNT, CLASS/SLOWER, or CLASS:COUNT/SLOWER.

    Raises UsageError.
    """
    parts = re.fullmatch(r"([^:/]+)(?::(\d+))?(?:/(\d+))?", text)
    if parts is None:
        raise UsageError(f"{text!r} names no disks; an example is msata:16/10")
    name, number, slower = parts[1], int(parts[2] or 1), int(parts[3] or 1)
    if name not in CLASSES:
        raise UsageError(
            f"no disk is called {name!r}{suggest(name, CLASSES)}; known: {', '.join(CLASSES)}"
        )
    if not 1 <= number <= MOST_DISKS or slower < 1:
        raise UsageError(f"{text}: 1 to {MOST_DISKS} disks, each as fast or slower by 1 or more")
    return Asked(name, number, slower)


def refusal() -> str | None:
    """Why no disks can be emulated here, None where they can."""
    if os.geteuid() != 0:
        return "disks are emulated by root alone"
    if not (GROUP / "blkio.throttle.read_bps_device").exists():
        return f"no disks are emulated: {GROUP} has no rates (control groups of version 1)"
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    if not any("blkio" in names.split(",") and path == "/" for _, names, path in groups):
        return "no disks are emulated: this process is not in the root group of blkio"
    missing = [tool for tool in TOOLS if _tool(tool) is None]
    if missing:
        return f"no disks are emulated: {', '.join(missing)} not installed"
    return None


@contextmanager
def emulated(asked: Sequence[Asked], folder: Path) -> Generator[list[Path]]:
    """Folders, each on a disk of its own, in the order that they are asked for.

    Their files lie in ``folder``. Raises UsageError for too many, and ExecutionError where the
    system refuses, with its words.
    """
    reason = refusal()
    if reason is not None:
        raise ExecutionError(reason)
    disks = [one.disk for one in asked for _ in range(one.count)]
    if not 0 < len(disks) <= MOST_DISKS:
        raise UsageError(f"{len(disks)} disks; 1 to {MOST_DISKS} can be emulated")
    make_folder(folder)
    _clean_left(folder)
    owner = f"{os.getpid()}-{_started(os.getpid())}"
    images = [folder.resolve() / f"outgrid-disk-{owner}-{next(_numbers)}.img" for _ in disks]
    with guarded(CLEAN, [str(image) for image in images]):
        yield [_disk(image, disk) for image, disk in zip(images, disks, strict=True)]


def _disk(image: Path, disk: DiskClass) -> Path:
    """Make one; where it is mounted."""
    free = shutil.disk_usage(image.parent).free
    with image.open("xb") as file:
        file.truncate(min(MOST_BYTES, free - free % MIB))
    # tmpfs takes no direct transfers of loop devices; then pages are copied there, not kept twice.
    device = Path(_call("losetup", "--show", "-f", "--direct-io=on", str(image)))
    formed = ("-q", "-m", "0", "-b", "4096", "-T", "largefile4", "-O", "^has_journal")
    _call("mkfs.ext4", *formed, "-E", "nodiscard,lazy_itable_init=0", str(device))
    place = image.with_suffix("")
    place.mkdir()
    _call("mount", "-o", "noatime,discard", str(device), str(place))
    shown = Path("/sys/block") / device.name
    (shown / "queue/read_ahead_kb").write_text(str(disk.ahead_bytes // KIB))
    number = (shown / "dev").read_text().strip()
    for kind, value in (
        ("read_bps", disk.read_bytes),
        ("write_bps", disk.write_bytes),
        ("read_iops", disk.reads),
        ("write_iops", disk.writes),
    ):
        (GROUP / f"blkio.throttle.{kind}_device").write_text(f"{number} {value}")
    shutil.rmtree(place / "lost+found")
    return place


def _clean_left(folder: Path) -> None:
    """Remove disks of processes that are gone, as devices tell them, and files in ``folder``."""
    told = [
        Path(path.read_text().strip().removesuffix(" (deleted)"))
        for path in Path("/sys/block").glob("loop*/loop/backing_file")
    ]
    left = {
        str(path)
        for path in (*told, *folder.resolve().glob("outgrid-disk-*.img"))
        if (owner := NAME.fullmatch(path.name)) and _started(int(owner[1])) != int(owner[2])
    }
    if left:
        subprocess.run(["/bin/sh", "-c", CLEAN, "sh", *sorted(left)], check=False)


def _started(process: int) -> int:
    """When a process began, in ticks since the system did; 0 for one that is gone."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(told.rpartition(")")[2].split()[19])


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _call(name: str, *arguments: str) -> str:
    """What a tool prints. Raises ExecutionError with its complaint."""
    done = subprocess.run(
        [_tool(name) or name, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ExecutionError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
