"""Initial values of a field in a file of their own, which runs of a gradient read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.comm import world
from outgrid.config import RunOptions
from outgrid.durable import partial_path, replace_whole
from outgrid.execute.fill import BLOCKS, CHUNK_BYTES, InitialValues, fill
from outgrid.execute.inputs import Inputs
from outgrid.machine import describe_machine, limit_on_memory
from outgrid.plan.schedule.rings import Arrival
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore, Transfers

__all__ = ["write_level"]

ROOM_SHARE = 1 / 4
"""Of the memory, for values on their way; no window is there yet."""


def write_level(problem: Problem, name: str, path: Path, options: Mapping[str, Any]) -> None:
    """Write the initial values of a field as the problem keeps them, durably.

    Not where they are there already, in the file of that `path` or where the problem has them as
    they are kept. Values beyond the range of a shorter type become infinite. `options` are those of
    the runs.
    """
    memory = limit_on_memory(options.get("memory"), world().local)
    asked = RunOptions.of(memory=memory, threads=options.get("threads"))
    room = min(BLOCKS * CHUNK_BYTES, int(asked.memory_bytes * ROOM_SHARE))
    threads = asked.threads or describe_machine().cores
    level, partial = Arrival(name, 0, 0, True), partial_path(path)
    with Inputs(problem) as inputs:
        there = inputs.lying(name)
        if path.exists() or (there is not None and there.dtype == np.dtype(problem.dtype_of(name))):
            return
        values = InitialValues(problem, inputs=inputs, threads=threads)
        with Transfers() as transfers:
            made = partial, problem.shape, problem.dtype_of(name), transfers
            with (
                closing(DirectStore.create(*made, overwrite=True)) as store,
                np.errstate(over="ignore"),
            ):
                fill(values, (level,), lambda _: store, transfers, memory_bytes=room)
                store.flush()
                transfers.drain()
        replace_whole(partial, path)
