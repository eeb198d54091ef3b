"""Parameters that follow reductions: their numbers are brought in when a sweep is complete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from outgrid.config import RunOptions
from outgrid.observe.accumulators import CELLS, Accumulators, Table, added, numbers
from outgrid.observe.observer import Observer
from outgrid.observe.totals import Totals
from outgrid.runs.run import Run
from outgrid.runs.samples import totals_file
from outgrid.stencil.problem import Problem

__all__ = ["Feedback"]


class Feedback(Observer):
    """Fills in the rows of a kernel's parameters that wait for the reductions of steps before."""

    tells: ClassVar[bool] = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._accumulators: Accumulators | None = None
        self._parameters: NDArray[np.float64] = np.zeros((0, 0))
        self._kinds = tuple(reduction.kind for reduction in run.given.stencil.reductions)

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where there are such parameters."""
        return bool(problem.lagged)

    def attach(self, kernel: Any) -> Any:
        """What the steps before this process have left to those that it makes."""
        self._accumulators, self._parameters = kernel.reductions, kernel.parameters
        done, longest = self.run.done, max(lagged.lag for lagged in self.run.given.lagged.values())
        steps = range(max(0, done - longest), done)
        self._fill(steps, self.run.comm.share(self._own(steps)))
        return kernel

    def seen(self, sweeps: int) -> bytes | None:
        """The totals of this rank in the last of so many sweeps."""
        if self._accumulators is not None:
            self._accumulators.settle(sweeps)
        return self._own(self._steps(sweeps)).tobytes()

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> str:
        """The run goes on, with what all ranks have seen together."""
        steps = self._steps(sweeps)
        shape = len(steps), len(self._kinds), CELLS
        self._fill(steps, [np.frombuffer(told, np.int64).reshape(shape) for told in seen])
        return ""

    def _steps(self, sweeps: int) -> range:
        """The steps of the last of so many sweeps, counted from the first one of the run."""
        depths = self.run.plan.schedule.depths[:sweeps]
        end = self.run.done + sum(depths)
        return range(end - depths[-1], end)

    def _own(self, steps: range) -> Table:
        """The totals of this rank."""
        totals = Totals(*totals_file(self.run.folder.out, self.run.manifest), self._kinds)
        try:
            return totals.read(steps)
        finally:
            totals.close()

    def _fill(self, steps: range, tables: Sequence[Table]) -> None:
        """Set what follows the reductions of ``steps``, of which all ranks have ``tables``."""
        values = numbers(self._kinds, reduce(partial(added, self._kinds), tables))
        given = self.run.given
        names = [reduction.name for reduction in given.stencil.reductions]
        for parameter, lagged in given.lagged.items():
            column = given.stencil.parameters.index(parameter)
            for step, row in zip(steps, values, strict=True):
                at = step + lagged.lag - self.run.done
                if 0 <= at < len(self._parameters):
                    self._parameters[at, column] = row[names.index(lagged.reduction)]
