"""The gradient that a job file asks for, as arguments of `og.gradient`."""

from __future__ import annotations

from typing import Any

from outgrid.config import OPTIONS
from outgrid.errors import UsageError
from outgrid.job import Job
from outgrid.reversal.objective import LeastSquares, Objective, Total

__all__ = ["asked"]

_LEAST_SQUARES = ("observed", "final", "snapshots")


def asked(job: Job) -> tuple[Objective, dict[str, Any]]:
    """The objective of `[gradient]`, and other keywords, those of its runs among them.

    Raises UsageError for a job without that table, for a table without an objective or with two,
    and for entries of `[run]` that several runs cannot share.
    """
    if job.gradient is None:
        raise UsageError(
            'the job has no table [gradient]; add one, such as wrt = ["c"] and observed = '
            '"traces.npy"'
        )
    given = dict(job.gradient)
    named = {key: given.pop(key) for key in _LEAST_SQUARES if key in given}
    total, weights = given.pop("total", None), given.pop("weights", None)
    if bool(named) == (total is not None):
        raise UsageError(
            "[gradient] must have one objective: total, or some of " + ", ".join(_LEAST_SQUARES)
        )
    if weights is not None and total is None:
        raise UsageError("weights in [gradient] are those of total, which is not given")
    objective = LeastSquares(**named) if total is None else Total(total, weights)
    return objective, given | _options(job)


def _options(job: Job) -> dict[str, Any]:
    """Entries of `[run]` as keywords."""
    options = job.options
    for key, option in OPTIONS.items():
        if option.passing and key != "out" and options.given(key) is not None:
            raise UsageError(
                f"a gradient is made of several runs, which do not support {key}; leave it out"
            )
    named = {key: value for key, value in options.kept(options.results).items() if key in OPTIONS}
    for own in ("scratch", "file"):  # of which each run has one of its own
        named.pop(own, None)
    if options.places:
        named["scratch"] = [str(place) for place in options.places]
    if options.memory_asked:
        named["memory"] = options.memory_bytes
    return named
