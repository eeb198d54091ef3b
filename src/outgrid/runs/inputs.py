"""What a run would be refused for: above all what is wrong with the files that it begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from outgrid.errors import BuildError, InfeasiblePlan, StoreError, UsageError
from outgrid.formats.npy import check_npy
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.units import nearest_three

__all__ = ["check_inputs", "refused"]


def check_inputs(problem: Problem) -> None:
    """Compare the header of every input file, before anything is written."""
    for name, source in problem.initial.items():
        if isinstance(source, Path):
            if not source.exists():
                others = sorted(each.name for each in source.parent.glob("*.npy"))
                hint = f"; did you mean {nearest_three(source.name, others)}?" if others else ""
                raise UsageError(f"the initial values of {name!r}: {source} does not exist{hint}")
            try:
                check_npy(source, problem.dtype_of(name.removesuffix(PREVIOUS)), problem.shape)
            except StoreError as error:
                raise UsageError(f"the initial values of {name!r}: {error}") from error


def refused(check: Callable[[], object]) -> Iterator[str]:
    """What a check says against a run; nothing where it passes."""
    try:
        check()
    except (BuildError, InfeasiblePlan, StoreError, UsageError) as error:
        yield str(error)
