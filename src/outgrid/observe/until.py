"""Ending a run when a reduction says so."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, ClassVar

import msgspec
import numpy as np

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.observe.accumulators import CELLS, Accumulators, Table, added, numbers
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.observe.totals import Totals
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.runs.samples import totals_file
from outgrid.stencil.problem import Problem

__all__ = ["EndsEarly"]


class EndsEarly(Observer):
    """Looks at a reduction in the steps that the condition of a problem names."""

    tells: ClassVar[bool] = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._accumulators: Accumulators | None = None
        self._kinds = tuple(reduction.kind for reduction in run.given.stencil.reductions)
        names = [reduction.name for reduction in run.given.stencil.reductions]
        until = run.given.until
        self._column = names.index(until.reduction) if until is not None else 0

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where there is such a condition."""
        return problem.until is not None

    def attach(self, kernel: Any) -> Any:
        """The totals are those that the reductions of the run keep."""
        self._accumulators = kernel.reductions
        return kernel

    def seen(self, sweeps: int) -> bytes | None:
        """The total of this rank, where its step is looked at."""
        until, steps = self.run.problem.until, sum(self.run.plan.schedule.depths[:sweeps])
        if until is None or not until.looks(steps):
            return None
        if self._accumulators is not None:
            self._accumulators.settle(sweeps)
        return self._total(self.run.done + steps).tobytes()

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> str:
        """What was seen, where the condition holds of all ranks together."""
        until, steps = self.run.problem.until, sum(self.run.plan.schedule.depths[:sweeps])
        value = self._value([np.frombuffer(totals, np.int64) for totals in seen])
        if until is None or not until.holds(value):
            return ""
        return until.words(self.run.done + steps, value)

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Whether this state is the last one."""
        ended = self.run.ended if reached.steps == self.run.last and not reached.depth else ""
        return msgspec.structs.replace(manifest, ended=ended)

    def place(self, comm: Comm) -> Noted:
        """What was seen last of the condition, early or after all steps."""
        until, steps = self.run.given.until, self.run.last
        if self.run.ended or until is None or steps < until.begin:
            return Noted(ended=self.run.ended)
        last = steps - (steps - until.begin) % until.every
        value = self._value(comm.share(self._total(last)))
        return Noted(ended=until.words(last, value))

    def _total(self, step: int) -> Table:
        """The total of this rank in a step of the run."""
        totals = Totals(*totals_file(self.run.folder.out, self.run.manifest), self._kinds)
        try:
            return totals.read(range(step - 1, step))[:, [self._column]]
        finally:
            totals.close()

    def _value(self, totals: Sequence[Table]) -> float:
        kinds = (self._kinds[self._column],)
        every = (total.reshape(1, 1, CELLS) for total in totals)
        return float(numbers(kinds, reduce(partial(added, kinds), every))[0, 0])
