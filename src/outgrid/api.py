"""The functions a script calls: keywords in, values out, nothing decided here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.execute.streaming import Progress
from outgrid.machine import Machine, memory_limit_bytes
from outgrid.pipeline import Result
from outgrid.plan.model import Plan
from outgrid.stencil.problem import Problem

__all__ = ["Result", "plan", "resume", "run"]

Size = str | int | None
Folder = str | os.PathLike[str] | None


def plan(
    problem: Problem,
    *,
    memory: Size = None,
    scratch: Folder = None,
    machine: Machine | None = None,
    **options: Any,
) -> Plan:
    """How the problem would be run; ``.explain()`` tells it. Writes nothing.

    ``memory`` bounds the resident memory of the process, in bytes or as text like "32GiB" (left
    out: half of what the process may use). ``options`` are the keys of a job file's ``[run]``
    table, such as ``depth=8``. Raises InfeasiblePlan where nothing fits, UsageError for an unknown
    option.
    """
    return pipeline.plan(problem, _options(memory, scratch, None, options), machine)


def run(
    problem: Problem,
    *,
    memory: Size = None,
    scratch: Folder = None,
    out: Folder = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Result:
    """Run the problem; ``result["u"]`` is the field u, read from disk slice by slice.

    ``out`` is the folder of the results (left out: ``outgrid.run``), ``scratch`` that of the
    working files (left out: inside ``out``); neither may hold results already. No option changes
    the answer, not by one bit.
    """
    return pipeline.run(problem, _options(memory, scratch, out, options), progress)


def resume(
    out: str | os.PathLike[str],
    *,
    memory: Size = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Result:
    """Go on with the unfinished run in ``out`` from its last durable state, to the same bytes."""
    return pipeline.resume(Path(out), _options(memory, None, out, options), progress)


def _options(memory: Size, scratch: Folder, out: Folder, options: dict[str, Any]) -> RunOptions:
    size = memory_limit_bytes() // 2 if memory is None else memory
    return RunOptions.of(memory=size, scratch=scratch, out=out, **options)
