"""How often a state is made durable bit by bit, and where a run that was cut off goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outgrid.config import RunOptions
from outgrid.purposes import PASSING_TIERS

# A crash is to cost about so many seconds.
COMMIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Begin:
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


def notes_on_commits(options: RunOptions, why: str) -> tuple[str, ...]:
    """What tells that ``commit_every`` was asked for in vain, where there is a reason for it."""
    if options.commit_seconds is None or not why:
        return ()
    return (f"commit_every does nothing: {why}, so sweeps become durable as a whole",)
