"""What gradients are made of, and what they do not support: refused before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outgrid.config import OPTIONS
from outgrid.errors import UsageError
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.reverse import SOURCES
from outgrid.units import suggest

__all__ = ["check_options", "check_supported", "checked_wrt"]


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that several runs cannot share."""
    for key, option in OPTIONS.items():
        if option.passing and key != "out" and options.get(key) is not None:
            goes_on = "; stop it with Ctrl-C, and resume=True continues it"
            raise UsageError(
                f"a gradient is made of several runs, which do not support {key}; leave it out"
                f"{goes_on if key == 'stop_after' else ''}"
            )
    if options.get("stream_axis") == "x":
        raise UsageError(
            "runs of a gradient read the results of others, which stream_axis = 'x' leaves in "
            "Fortran order; leave it out"
        )
    if options.get("overwrite"):
        raise UsageError(
            "a gradient overwrites no other one; give another folder for out, or remove that"
        )


def checked_wrt(wrt: Sequence[str], problem: Problem) -> tuple[str, ...]:
    """The names of what a gradient is by. Raises UsageError for what has none."""
    rule = problem.stencil
    known = [one.name for one in rule.fields if not one.temporary]
    known += [lasting.name + PREVIOUS for lasting in rule.lasting if lasting.levels == 2]
    known += [*rule.parameters, *problem.profiles]
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    if SOURCES in names and SOURCES in known:
        raise UsageError(
            f"the stencil has a field or parameter {SOURCES!r}, which in wrt means all values "
            "of all sources; give it another name"
        )
    known += [SOURCES] if problem.sources else []
    for name in names:
        if name not in known:
            raise UsageError(
                "wrt must name parts of the problem that have a gradient, not "
                f"{name!r}{suggest(name, known)}"
            )
    if not names:
        raise UsageError(f"wrt must name at least one part of the problem, such as {known[:1]!r}")
    return names


def check_supported(problem: Problem, chunk: int, every: int) -> None:
    """Raise UsageError for a problem, or chunks of its steps, that no gradient is made of."""
    if reason := next(_why_not(problem, chunk, every), ""):
        raise UsageError(reason)


def _why_not(problem: Problem, chunk: int, every: int) -> Iterator[str]:
    """What is not supported, in words."""
    if problem.steps < 1 or chunk < 1 or every < 1 or chunk % every:
        yield (
            f"a gradient of {problem.steps} steps in chunks of {chunk} with every {every}-th"
            " state; give 1 or more of each, and chunks that are multiples of every"
        )
    if problem.until is not None:
        yield "gradients do not support until; leave it out and give the number of steps"
    for name, lagged in problem.lagged.items():
        yield (
            f"the parameter {name} is {lagged.rule}, which depends on all cells; gradients "
            "do not support that: give the parameter as a table of values, taken from a run"
        )
    if problem.series:
        yield f"gradients do not support a Series, here {', '.join(problem.series)}"
    if problem.line:
        yield (
            f"gradients need at least 2 axes; give the problem shape (1, {problem.shape[-1]}) and "
            "a stencil of two axes"
        )
