"""From a job file to a problem and the options of its run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outgrid.config import BoundaryTable, ProblemTable, RunOptions, RunTable, read_job_file
from outgrid.errors import InfeasiblePlan, meaning
from outgrid.formats import InputFile
from outgrid.machine import limit_on_memory, memory_limit_bytes
from outgrid.plan.tables import LISTED_BYTES
from outgrid.stencil.boundary import Boundary, boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.initial import InitialExpression, evaluate_steps
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import Problem
from outgrid.units import format_bytes

__all__ = ["Job", "load_job"]

STEP_NAME = re.compile(r"\bstep\b")


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
    problem, InfeasiblePlan where formulas of step have more values than memory. Opens no input.
    """
    file = read_job_file(path, settings)
    options = _options(file.run, path, processes)
    _check_listed(file.problem, options.memory_bytes)
    return Job(_problem(file.problem, path.parent), options)


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


def _check_listed(table: ProblemTable, memory_bytes: int) -> None:
    """Raise InfeasiblePlan where what formulas of step are in all steps is beyond the limit."""
    given = [each for each in table.parameters.values() if isinstance(each, str)]
    formulas = sum(STEP_NAME.search(each) is not None for each in given)
    formulas += sum(isinstance(each.values, str) for each in table.sources)
    needed = formulas * table.steps * LISTED_BYTES
    if needed > memory_bytes:
        fitting = memory_bytes // (formulas * LISTED_BYTES)
        what = "a formula" if formulas == 1 else f"{formulas} formulas"
        raise InfeasiblePlan(
            f"the values of {what} of step take {format_bytes(needed)} in {table.steps} steps, "
            f"above the memory limit of {format_bytes(memory_bytes)}; fewer than {fitting} steps "
            "fit, or a stencil of one's own that computes them from outgrid.step"
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


def _initial(value: str | float | InputFile, base: Path) -> float | str | InputFile:
    """A text that ends like a file of a known format is one; any other is an expression."""
    if isinstance(value, str) and InputFile.named_by(value):
        value = InputFile(value)
    return value.within(base) if isinstance(value, InputFile) else value


def _options(table: RunTable, path: Path, processes: int) -> RunOptions:
    default_bytes = memory_limit_bytes() // 2 // processes
    if table.memory is not None:
        memory = limit_on_memory(table.memory, processes)
        table = msgspec.structs.replace(table, memory=memory)
    options = RunOptions.from_table(table, path.parent, default_bytes)
    out = options.out or path.with_suffix(".run")
    return msgspec.structs.replace(options, out=out, scratch=options.scratch or out / "scratch")
