"""What receivers see in each step: kept beside a run, and left as traces in its end."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.observe.points import Points, sampled, traces_of
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.runs.samples import TRACES_NAME, place_traces, read_samples, write_samples
from outgrid.stencil.problem import Problem

__all__ = ["Receivers"]

Samples = NDArray[np.float64]


class Receivers(Observer):
    """The samples of all steps of a run, one row for each; those of steps to come are 0.

    Each rank keeps what it holds of them.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._manifest = run.manifest  # the one that earlier samples belong to
        self._earlier: Samples | None = None
        self._points: Points | None = None

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where there are receivers."""
        return bool(problem.receivers)

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """The traces."""
        return (TRACES_NAME,) if alone else ()

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Begin with what receivers here saw in earlier steps, as the rank did that counts."""
        if durable is not None:
            _, planes, rows, _ = sampled(self.run.problem)[0].T
            seen = durable.samples(planes, rows)
            if seen is not None:
                mine = self.run.owned.holds(planes, rows)
                made = np.arange(len(seen))[:, None] < durable.steps
                kept = np.where(mine & made, seen, 0.0)
                manifest = write_samples(self.run.folder.out, manifest, kept)
        self._manifest = manifest
        return manifest

    def attach(self, kernel: Any) -> Any:
        """Go on with the samples that are there.

        After a crash in mid-sweep the kernel does not come by the planes that were durable: what
        was seen there in steps that are not complete is taken over as well.
        """
        points: Points = kernel.points
        seen = read_samples(self.run.folder.out, self._manifest)
        if seen is not None:
            seen = seen[:, : len(points.sampled)]  # an older version kept reductions behind them
            self._earlier = seen[: self.run.done]
            points.samples[...] = seen[self.run.done : self.run.last]
        self._points = points
        return kernel

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Write all that was seen so far, for a resume to go on with."""
        if self._points is None:
            return manifest
        return write_samples(self.run.folder.out, manifest, self._seen(self._points))

    def place(self, comm: Comm) -> Noted:
        """Leave the traces, of what the rank has seen that owns a cell."""
        run, points = self.run, self._points
        if points is not None:
            held = run.owned.holds(points.sampled[:, 1], points.sampled[:, 2])
            counts = held | run.plan.schedule.domain.subgrid.seams
            every = comm.share(np.where(counts, self._seen(points)[: run.last], 0.0))
            if comm.rank == 0:
                traces = traces_of(reduce(np.add, every), points.weights, points.firsts)
                return Noted(place_traces(run.out, traces))
        return Noted()

    def _seen(self, points: Points) -> Samples:
        if self._earlier is None:
            return points.samples
        return np.vstack([self._earlier, points.samples])
