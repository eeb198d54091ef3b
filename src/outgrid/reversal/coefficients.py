"""Coefficients as files, which all runs of a gradient read where they lie."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from outgrid.config import RunOptions
from outgrid.durable import partial_path, replace_whole
from outgrid.execute.fill import BLOCKS, CHUNK_BYTES, InitialValues, fill
from outgrid.execute.inputs import Inputs
from outgrid.machine import describe_machine, limit_on_memory
from outgrid.plan.schedule.rings import Arrival
from outgrid.reversal.task import Task
from outgrid.storage import DirectStore, Transfers

__all__ = ["write_coefficients"]

ROOM_SHARE = 1 / 4
"""Of the memory, for values on their way; no window is there yet."""


def write_coefficients(task: Task) -> None:
    """Write those that each run would have to make or to copy, once; not what is there already.

    Ranks copy in any case, each its own part, and so do runs of coefficients that exist in a part
    of the grid.
    """
    if task.comm.size > 1:
        return
    problem, given = task.problem, task.options
    memory = limit_on_memory(given.get("memory"), task.comm.local)
    asked = RunOptions.of(memory=memory, threads=given.get("threads"))
    room = min(BLOCKS * CHUNK_BYTES, int(asked.memory_bytes * ROOM_SHARE))
    threads = asked.threads or describe_machine().cores
    for name in (field.name for field in problem.stencil.coefficients):
        path = task.coefficient(name)
        with Inputs(problem) as inputs:
            if path.exists() or name in problem.regions or inputs.lying(name) is not None:
                continue
            _write(InitialValues(problem, inputs=inputs, threads=threads), name, path, room)


def _write(values: InitialValues, name: str, path: Path, room: int) -> None:
    """Write one, durably: runs rely on it for as long as the gradient takes."""
    problem, level, partial = values.problem, Arrival(name, 0, 0, True), partial_path(path)
    with Transfers() as transfers:
        made = partial, problem.shape, problem.dtype_of(name), transfers
        with closing(DirectStore.create(*made, overwrite=True)) as store:
            fill(values, (level,), lambda _: store, transfers, memory_bytes=room)
            store.flush()
            transfers.drain()
    replace_whole(partial, path)
