"""The disk under a folder, as the kernel describes it."""

from __future__ import annotations

import os
from pathlib import Path

from outgrid.durable import existing
from outgrid.plan.layout import LINE_BYTES
from outgrid.regular import resolved

__all__ = ["disk_of", "moves_lines"]

SYSFS = Path("/sys")


def disk_of(place: Path, sysfs: Path = SYSFS) -> str | None:
    """Name of the disk that holds the file system of a folder, None where it is on none.

    The folder need not be there yet; a disk itself may be named as well.
    """
    status = place.stat() if place.is_block_device() else existing(place).stat()
    number = status.st_rdev if place.is_block_device() else status.st_dev
    entry = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not entry.exists():
        return None
    entry = resolved(entry)
    return entry.parent.name if (entry / "partition").exists() else entry.name


def moves_lines(place: Path, sysfs: Path = SYSFS) -> bool:
    """Whether direct transfers between the disk of a folder and memory may begin at any line of it.

    NVMe disks ask for four bytes, most others for whole sectors. False where the kernel does not
    say: `dma_alignment` is in sysfs since Linux 6.0.
    """
    disk = disk_of(place, sysfs)
    if disk is None:
        return False
    try:
        mask = int((sysfs / "block" / disk / "queue/dma_alignment").read_text())
    except (OSError, ValueError):
        return False
    return mask < LINE_BYTES
