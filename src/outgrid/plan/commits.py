"""How often a state is made durable bit by bit, and where a run that was cut off goes on."""

from __future__ import annotations

import math

import msgspec

from outgrid.config import RunOptions
from outgrid.machine import Machine
from outgrid.stencil.problem import Problem
from outgrid.tiers import PASSING_TIERS
from outgrid.units import format_bytes, format_seconds

# A crash is to cost about so many seconds.
COMMIT_SECONDS = 30.0
SEEN_BYTES = 8  # of a number that is seen in a step
# Whatever was written meanwhile, a flush is to take no longer: the disk does nothing else.
FLUSHING_SECONDS = 0.1


class Begin(msgspec.Struct, frozen=True):
    """Where a run goes on within a sweep of ``depth`` steps.

    All is there that its first ``part`` trips leave, and what the next one leaves in planes below
    ``planes``. ``cut`` is how it was cut: (), the height of its strips, or (planes, rows) of its
    blocks.
    """

    depth: int
    planes: int
    part: int = 0
    cut: tuple[int, ...] = ()


def commit_planes(options: RunOptions, sweep_seconds: float, planes: int, seams: bool) -> int:
    """Planes between two commits within a sweep, of ``planes`` in all its trips; 0 for none.

    Nothing is left of fields in memory alone, and of ``seams`` on tiers that keep fields on disk
    only beside.
    """
    if options.tier in PASSING_TIERS and (options.keep == "none" or seams):
        return 0
    seconds = COMMIT_SECONDS if options.commit_seconds is None else options.commit_seconds
    share = seconds / max(1e-9, sweep_seconds)
    return max(1, min(planes, math.ceil(planes * share))) if share < 1 else planes


def flush_bytes(machine: Machine) -> int:
    """Bytes after which what was written is flushed, between commits as well; 0 for never.

    A disk that keeps what it is given in a cache would hold up all transfers for as long as it
    takes to write all of that, and the window has planes for less.
    """
    seconds = machine.flushing_seconds
    return math.ceil(FLUSHING_SECONDS / seconds) if seconds else 0


def committing_seconds(
    problem: Problem, options: RunOptions, machine: Machine, seconds: float, least: int, most: int
) -> float:
    """Seconds in which states become durable in a run that takes so many beside.

    There are ``least`` of them whatever that takes, and at ``most`` so many; of fields in memory
    alone only the last one is kept. Nothing is computed meanwhile. Beside the files of a state and
    the one that says so there are what was seen in all steps, and each snapshot.
    """
    if options.passing:
        least = most = min(1, least)
    every = COMMIT_SECONDS if options.commit_seconds is None else options.commit_seconds
    count = min(most, least + (seconds / every if every > 0 else most))
    observed = len(problem.receivers) + len(problem.stencil.reductions)
    files = 1 + bool(observed) + len(problem.snapshots)
    seen_bytes = SEEN_BYTES * problem.steps * observed
    return count * (files * machine.flush_seconds + seen_bytes / machine.write_bandwidth)


def notes_on_flushes(machine: Machine, every_bytes: int, written_bytes: int) -> tuple[str, ...]:
    """What tells that a run flushes more often than its commits ask for."""
    if not 0 < every_bytes < written_bytes:
        return ()
    seconds = format_seconds(1e9 * machine.flushing_seconds)
    return (
        f"what is written is flushed after every {format_bytes(every_bytes)}: the disk takes "
        f"{seconds} for each GB of it",
    )


def notes_on_commits(options: RunOptions, why: str) -> tuple[str, ...]:
    """What tells that ``commit_every`` was asked for in vain, where there is a reason for it."""
    if options.commit_seconds is None or not why:
        return ()
    return (f"commit_every has no effect: {why}, so only whole sweeps become durable",)
