"""The disk under a folder: what it is, and the kernel's counters of what it moved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outgrid.durable import existing

__all__ = ["Disk", "disk_bytes", "disk_of"]

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Disk:
    """``device`` is the kernel's name, "" for a file system without a disk; ``model`` what it calls
    itself, where it does; ``scheduler`` what orders its requests; ``ahead_bytes`` are read
    around a page of a mapped file that is touched, at most. ``read_bytes`` and ``written_bytes``
    were moved during an experiment, for whomever. ``emulated`` names the class of a disk that is
    emulated, and how much slower it is made."""

    device: str
    model: str
    file_system: str
    scheduler: str
    ahead_bytes: int
    read_bytes: int
    written_bytes: int
    emulated: str = ""


def disk_of(folder: Path, read_bytes: int, written_bytes: int, sysfs: Path = Path("/sys")) -> Disk:
    """The disk on which ``folder`` lies or would lie, and what it moved."""
    place = existing(folder)
    number = place.stat().st_dev
    link = sysfs / f"dev/block/{os.major(number)}:{os.minor(number)}"
    device = link.resolve() if link.exists() else None
    whole = device
    while whole is not None and not (whole / "queue").is_dir():  # of a partition
        whole = whole.parent if whole.parent != whole else None
    scheduler = _told(whole / "queue/scheduler") if whole is not None else ""
    return Disk(
        "" if device is None else device.name,
        "" if whole is None else _told(whole / "device/model"),
        _file_system(number),
        scheduler.partition("[")[2].partition("]")[0],
        0 if whole is None else int(_told(whole / "queue/read_ahead_kb") or 0) << 10,
        read_bytes,
        written_bytes,
    )


def disk_bytes(device: int) -> tuple[int, int]:
    """Read and written since the system started; zeroes for a file system without a disk.

    ``device`` is the ``st_dev`` of a file there.
    """
    wanted = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        if words[:2] == wanted:
            return int(words[5]) * SECTOR_BYTES, int(words[9]) * SECTOR_BYTES
    return 0, 0


def _told(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _file_system(device: int) -> str:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[2] == wanted:
            return words[words.index("-") + 1]
    return ""
