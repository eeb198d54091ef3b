"""What watches a run: receivers, snapshots, reductions, previews, levels, values not finite.

A new observer is a file with a class of `Observer`, and its line in ``KINDS``.
"""

from __future__ import annotations

from outgrid.config import RunOptions
from outgrid.observe.finite import Finite
from outgrid.observe.lagged import Feedback
from outgrid.observe.live import Live
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.observe.observers import Observers
from outgrid.observe.preview import Preview
from outgrid.observe.pyramid import Pyramid
from outgrid.observe.receivers import Receivers
from outgrid.observe.reductions import Reductions
from outgrid.observe.snapshots import Snapshots
from outgrid.observe.still import Still
from outgrid.observe.until import EndsEarly
from outgrid.runs.run import Run
from outgrid.stencil.problem import Problem

__all__ = [
    "KINDS",
    "Noted",
    "Observer",
    "Observers",
    "Reached",
    "beside_bytes",
    "files_of",
    "observers_of",
]

KINDS: tuple[type[Observer], ...] = (
    Finite,
    Still,
    Receivers,
    Reductions,
    Feedback,
    EndsEarly,
    Snapshots,
    Preview,
    Pyramid,
    Live,
)


def observers_of(run: Run) -> Observers:
    """Whatever watches a run."""
    return Observers(run, [kind(run) for kind in KINDS if kind.watches(run.given, run.options)])


def files_of(problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
    """Names of all that observers leave in the folder of a run, or of a rank not ``alone``."""
    return tuple(
        name
        for kind in KINDS
        if kind.watches(problem, options)
        for name in kind.files(problem, options, alone=alone)
    )


def beside_bytes(problem: Problem, options: RunOptions) -> int:
    """Space that observers need for what they leave in the folder of a run, beside snapshots."""
    return sum(kind.nbytes(problem) for kind in KINDS if kind.watches(problem, options))
