"""What the choice of a tier means for a plan."""

from __future__ import annotations

from outgrid.config import RunOptions
from outgrid.tiers import TIERS

__all__ = ["copies_in_memory", "disk_tier", "notes_on_tier", "streaming_tier"]


PRICED = "transfers are predicted as for direct I/O; the page cache changes their time"
COPIED = "transfers are predicted as copies in memory; what the system swaps out takes longer"
BEYOND = "the limit holds for the window; only a control group limits the page cache"


def streaming_tier(options: RunOptions) -> str:
    """The tier that a streamed grid lives in."""
    tier = TIERS.get(options.tier)
    return tier.name if tier is not None and tier.streamed else "direct"


def disk_tier(options: RunOptions) -> str:
    """The tier by whose rules a streamed grid takes space on disk."""
    return "direct" if options.keep == "disk" else streaming_tier(options)


def notes_on_tier(options: RunOptions) -> tuple[str, ...]:
    """What a reader of the plan has to know of the tier that was asked for."""
    tier = TIERS.get(options.tier)
    if tier is None:
        return ()
    if options.keep == "disk":
        return (f"data in {tier.name} memory is written to disk as well",)
    lost = (tier.lost,) if options.passing else ()
    priced = COPIED if copies_in_memory(options) else PRICED
    if not tier.mapped:
        return lost
    if _in_files(options) and "dontneed" in madvise(options):
        return (priced,)
    return (priced, *lost, BEYOND) if lost else (BEYOND, priced)


def copies_in_memory(options: RunOptions) -> bool:
    """Whether transfers are copies between a device and the memory of the process."""
    return options.tier == "swap" and options.device != "cpu"


def madvise(options: RunOptions) -> tuple[str, ...]:
    """What the system is told of mappings; unless asked otherwise, what keeps the memory limit.

    Mapped pages of files count as memory of the process until they are given back.
    """
    if options.madvise is not None:
        return options.madvise
    return ("dontneed",) if _in_files(options) else ()


def _in_files(options: RunOptions) -> bool:
    """Whether a streamed grid is mapped files."""
    tier = TIERS.get(options.tier)
    return tier is not None and tier.mapped and tier.files and not options.in_place
