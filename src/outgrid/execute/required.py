"""What a run requires of its machine, looked at before anything is made or removed."""

from __future__ import annotations

import mmap
from pathlib import Path

from outgrid.config import RunOptions
from outgrid.durable import existing
from outgrid.errors import StoreError
from outgrid.execute.window import ring_bytes
from outgrid.plan.model import Plan
from outgrid.storage import is_device, takes_direct

__all__ = ["NOT_DIRECT", "NOT_LOCKED", "check_required", "refusal"]

NOT_DIRECT = "the file system refused O_DIRECT: the page cache is used"
NOT_LOCKED = "the system may swap the window out"

MAP_LOCKED = 0x2000  # as asm-generic/mman.h has it


def refusal(wanted: str, what: str, path: Path) -> StoreError:
    """The error of a run that requires what is ``wanted``, and would have ``what`` instead."""
    return StoreError(f"{what}, but the run requires {wanted}", path=path)


def check_required(chosen: Plan, options: RunOptions, scratch: Path) -> None:
    """Raise StoreError where working files cannot be direct, or the window cannot be locked, and
    the options require it. Leaves nothing.

    What only a file with a name tells, or the memory itself, is told when they are made.
    """
    if "direct" in options.require and chosen.store_tier == "direct":
        for place in options.places or (scratch,):
            if not (is_device(place) or takes_direct(existing(place))):
                raise refusal("direct", NOT_DIRECT, place)
    if "mlock" in options.require and chosen.schedule.rings:
        nbytes = sum(ring_bytes(chosen, number) for number in range(len(chosen.schedule.rings)))
        try:
            _may_lock(nbytes)
        except OSError as error:
            raise StoreError(
                f"{NOT_LOCKED}, {nbytes} bytes, but the run requires mlock (see `ulimit -l`)",
                errno=error.errno,
            ) from error


def _may_lock(nbytes: int) -> None:
    """Raise OSError where the process may not lock so much memory. Takes none of it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_LOCKED
    mmap.mmap(-1, nbytes, flags=flags, prot=0).close()  # pages without access are not filled
