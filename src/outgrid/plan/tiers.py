"""What the choice of a tier means for a plan."""

from __future__ import annotations

from outgrid.config import RunOptions

__all__ = ["disk_tier", "notes_on_tier", "streaming_tier"]


def streaming_tier(options: RunOptions) -> str:
    """The tier that a streamed grid lives in."""
    return "direct" if options.tier in ("auto", "memory") else options.tier


def disk_tier(options: RunOptions) -> str:
    """The tier by whose rules a streamed grid takes space on disk."""
    return "direct" if options.keep == "disk" else streaming_tier(options)


def notes_on_tier(options: RunOptions) -> tuple[str, ...]:
    """What a reader of the plan has to know of the tier that was asked for."""
    priced = "transfers are priced as direct ones: what the system holds decides what they take"
    beyond = (
        "the limit bounds the window; only a control group bounds what the system keeps besides"
    )
    match options.tier:
        case "swap" if options.in_place:
            return (beyond, priced)
        case "swap":
            return (
                priced,
                "the grid is in memory that the system may swap out: a run cut off cannot be "
                "resumed",
                beyond,
            )
        case "remote" if options.keep == "disk":
            return ("what is put into remote memory is kept on disk as well",)
        case "remote":
            return (
                "remote memory is not durable: a run cut off, or a memory node lost, cannot be "
                'resumed; keep = "disk" keeps what is put in files as well',
            )
        case "mmap" if options.in_place or "dontneed" not in madvise(options):
            return (beyond, priced)
        case "mmap":
            return (priced,)
        case _:
            return ()


def madvise(options: RunOptions) -> tuple[str, ...]:
    """What the system is told of mappings; unless asked otherwise, what keeps the memory limit.

    Mapped pages of files count as memory of the process until they are given back.
    """
    if options.madvise is not None:
        return options.madvise
    return ("dontneed",) if options.tier == "mmap" and not options.in_place else ()
