"""Coefficients as files, which all runs of a gradient read where they lie."""

from __future__ import annotations

from outgrid.reversal.levels import write_level
from outgrid.reversal.task import Task

__all__ = ["write_coefficients"]


def write_coefficients(task: Task) -> None:
    """Write those that each run would have to make or to copy, once; not what is there already.

    Ranks copy in any case, each its own part, and so do runs of coefficients that exist in a part
    of the grid.
    """
    if task.comm.size > 1:
        return
    problem = task.problem
    for name in (field.name for field in problem.stencil.coefficients):
        if name not in problem.regions:
            write_level(problem, name, task.coefficient(name), task.options)
