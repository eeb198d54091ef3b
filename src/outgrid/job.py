"""From a job file to a problem and the options of its run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outgrid.config import BoundaryTable, ProblemTable, RunOptions, RunTable, read_job_file
from outgrid.errors import meaning
from outgrid.machine import limit_on_memory, memory_limit_bytes
from outgrid.stencil.boundary import Boundary, boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.initial import InitialExpression, evaluate_steps
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import Problem

__all__ = ["Job", "load_job"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a job file says: what is computed, and how."""

    problem: Problem
    options: RunOptions


def load_job(path: Path, settings: Mapping[str, Any] | None = None, processes: int = 1) -> Job:
    """The job at `path`; `settings` replace entries of its `[run]` table.

    Paths in the file are relative to its folder. Left out, `memory` is half of what this process
    may use, or its share of that where `processes` of a run are on this host, `out` the job file's
    name with the suffix .run, `scratch` a folder inside `out`.
    Raises UsageError for what is wrong with the file, DefinitionError for what is wrong with the
    problem. Opens no input.
    """
    file = read_job_file(path, settings)
    return Job(_problem(file.problem, path.parent), _options(file.run, path, processes))


def _problem(table: ProblemTable, base: Path) -> Problem:
    return Problem(
        resolve(str(base / table.stencil) if ".py:" in table.stencil else table.stencil),
        shape=table.shape,
        dtype=table.dtype,
        dtypes=table.dtypes,
        steps=table.steps,
        parameters={
            name: _numbers(name, given, table.steps) for name, given in table.parameters.items()
        },
        sources=[
            Source(each.field, tuple(each.position), _values(number, each.values, table.steps))
            for number, each in enumerate(table.sources, 1)
        ],
        receivers=[Receiver(each.field, tuple(each.position)) for each in table.receivers],
        snapshots=[msgspec.to_builtins(each) for each in table.snapshots],
        until=msgspec.to_builtins(table.until),
        boundary=_boundary(table.boundary),
        initial={name: _initial(value, base) for name, value in table.initial.items()},
    )


def _numbers(name: str, given: float | list[float] | str, steps: int) -> Any:
    """A formula of step as one number per step; anything else as it is."""
    if isinstance(given, str):
        with meaning(f"the parameter {name}"):
            formula = InitialExpression(given)
            if "step" in formula.names:
                return evaluate_steps(formula, steps)
    return given


def _values(number: int, given: float | list[float] | str, steps: int) -> Any:
    """What a source adds; its text is a formula of step, also one that does not change."""
    if not isinstance(given, str):
        return given
    with meaning(f"the values of source {number}"):
        return evaluate_steps(InitialExpression(given), steps)


def _boundary(written: str | BoundaryTable) -> Boundary:
    return boundary_of(msgspec.to_builtins(written))


def _initial(value: str | float, base: Path) -> Path | float | str:
    """A text that ends like a file of an array is a path; any other is an expression."""
    if isinstance(value, str) and value.endswith(".npy"):
        return base / value
    return value


def _options(table: RunTable, path: Path, processes: int) -> RunOptions:
    default_bytes = memory_limit_bytes() // 2 // processes
    if table.memory is not None:
        memory = limit_on_memory(table.memory, processes)
        table = msgspec.structs.replace(table, memory=memory)
    options = RunOptions.from_table(table, path.parent, default_bytes)
    out = options.out or path.with_suffix(".run")
    return msgspec.structs.replace(options, out=out, scratch=options.scratch or out / "scratch")
