"""What receivers see in the runs forward of a gradient: in a file, where these are several."""

from __future__ import annotations

from typing import Any

import numpy as np

from outgrid.durable import partial_path
from outgrid.formats.npy import map_npy
from outgrid.result import Result
from outgrid.reversal.objective import TOGETHER
from outgrid.reversal.task import Task
from outgrid.runs.samples import TRACES_NAME

__all__ = ["Traces"]

NAME = "traces.seen.npy"  # no field has a name with a dot


class Traces:
    """The traces of all steps, float64 of (steps, receivers), taken from run after run.

    `array` has them when all runs are `done`, read when it is used.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.path = task, task.out / NAME
        shape = task.problem.steps, len(task.problem.receivers)
        self.done = task.comm.share(self.path.exists())[0]
        self.shape = shape
        self.array: Any = np.zeros((shape[0], 0))
        self._taken = 0
        self._into: Any = None
        if self.done:
            self.array = map_npy(self.path)

    def take(self, run: Result) -> None:
        """Take those of the next run."""
        steps, receivers = self.shape
        if self.done or not receivers:
            return
        part = map_npy(run.out / TRACES_NAME)
        if len(part) == steps:
            self.array = part
        elif self.task.comm.rank == 0:
            if self._into is None:
                path = partial_path(self.path)
                self._into = np.lib.format.open_memmap(path, "w+", float, (steps, receivers))
            together = max(1, TOGETHER // receivers)
            for step in range(0, len(part), together):
                rows = part[step : step + together]
                self._into[self._taken + step : self._taken + step + len(rows)] = rows
            self._into.flush()
        self._taken += len(part)

    def finish(self) -> None:
        """Have them where there were several runs."""
        if self._into is not None:
            self._into = None
            partial_path(self.path).rename(self.path)
        self.task.comm.share(None)
        if self.path.exists():
            self.array = map_npy(self.path)
