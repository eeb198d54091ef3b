"""Coefficients as files, which all runs of a gradient read where they lie."""

from __future__ import annotations

from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.execute.fill import BLOCKS, CHUNK_BYTES, InitialValues, fill
from outgrid.execute.inputs import Inputs
from outgrid.machine import describe_machine
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
    problem, memory = task.problem, task.options.get("memory")
    room = BLOCKS * CHUNK_BYTES
    if memory is not None:
        room = min(room, int(RunOptions.of(memory=memory).memory_bytes * ROOM_SHARE))
    threads = task.options.get("threads") or describe_machine().cores
    for name in (field.name for field in problem.stencil.coefficients):
        path = task.coefficient(name)
        with Inputs(problem) as inputs:
            if path.exists() or name in problem.regions or inputs.lying(name) is not None:
                continue
            partial, dtype = partial_path(path), problem.dtype_of(name)
            with Transfers() as transfers:
                created = DirectStore.create
                store = created(partial, problem.shape, dtype, transfers, overwrite=True)
                values = InitialValues(problem, inputs=inputs, threads=threads)
                level = Arrival(name, 0, 0, constant=True)
                fill(values, (level,), lambda _, store=store: store, transfers, memory_bytes=room)
                store.flush()
                transfers.drain()
                store.close()
            partial.rename(path)
