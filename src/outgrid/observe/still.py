"""Planes that a wave has not reached: where all is +0 and stays so, nothing is updated.

A plane that comes into the window with bytes of 0 alone is *still*. What a step makes of a plane
hangs on planes of the state that the sweep began with, at most so far off as the stages read in all
steps up to it. If these are all still, and the stencil `rests`, the plane is +0 after that step.
A slab leaves out the steps of which that holds for all of its planes.

What is left out is not stored either. A ring in which the level before was lies as it was, and
holds +0 already; one that no plane has come into is cleared when the first level would have been
stored there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.config import RunOptions
from outgrid.observe.observer import Observer, Window
from outgrid.plan.instruction import Get, Stretch
from outgrid.plan.model import Plan
from outgrid.plan.schedule.lifetime import Dependences, dependences
from outgrid.plan.schedule.rings import parts_within
from outgrid.plan.schedule.trip import Trip
from outgrid.runs.run import Run
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem
from outgrid.stencil.still import rests
from outgrid.storage.zeroes import all_zero, clear

__all__ = ["Still", "StillPlanes"]

REMEMBERED = 4  # trips that may have planes in the window


class Still(Observer):
    """Looks at planes that come in, and lets a kernel leave out what stays +0."""

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where updates that are not made can be told from the problem."""
        return not problem.stencil.reductions and not problem.series

    def attach(self, kernel: Any) -> Any:
        """A kernel that knows of still planes, where there may be any."""
        planes = StillPlanes.of(self.run.plan, self.run.problem)
        if planes is None:
            return kernel
        self.arriving = planes.arrived
        return replace(kernel, still=planes)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far off the planes are that those of a step hang on: per step, from 1 on, and stage.

    All of ``low`` to ``high`` planes from it in the state that a sweep begins with.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @classmethod
    def of(cls, reads: Dependences, depth: int) -> Reach:
        """That of sweeps of up to ``depth`` steps."""
        writers = {write.field: write.writer for write in reads.writings}
        low, high = np.zeros((2, depth + 1, reads.stages), np.int64)
        for step in range(1, depth + 1):
            for stage in range(reads.stages):
                for read in reads.readings:
                    writer = writers.get(read.field)
                    if read.reader != stage or writer is None:
                        continue
                    made = max(0, step + read.version)  # 0: it has come with the state
                    before = (low[made, writer], high[made, writer]) if made else (0, 0)
                    low[step, stage] = min(low[step, stage], read.low + before[0])
                    high[step, stage] = max(high[step, stage], read.high + before[1])
        return cls(low[1:], high[1:])


class StillPlanes:
    """The planes of sweeps under way that are known to be still, by what has come of them.

    ``spared`` counts rows of planes times steps that were left out.
    """

    def __init__(self, plan: Plan, problem: Problem) -> None:
        schedule, stencil = plan.schedule, problem.stencil
        self.spared = 0
        self._planes = schedule.planes
        self._reads = dependences(stencil, problem.edges)
        self._first = np.zeros(schedule.planes, np.int64)  # levels that are still to be seen
        for arrival in schedule.arrivals:
            if not arrival.constant:
                for part in parts_within(schedule.bands(arrival.field), range(schedule.planes)):
                    self._first[part.start : part.stop] += 1
        for source in problem.sources:
            for (plane, *_), _ in corners(source.position):
                self._first[plane] += 1  # that is never seen
        self._pending: dict[int, NDArray[np.int64]] = {}
        self._reaches: dict[int, Reach] = {}
        # Per stage the fields that it makes, their rings, and levels that come into these.
        self._made = [
            [
                (write.field, write.rings, 0 if field.temporary else field.levels)
                for write in self._reads.writings
                if write.writer == stage
                for field in (stencil.field(write.field),)
            ]
            for stage in range(self._reads.stages)
        ]

    @classmethod
    def of(cls, plan: Plan, problem: Problem) -> StillPlanes | None:
        """None where nothing can be left out.

        Planes pass through the window as a whole, of one rank, in the memory of the processor.
        """
        schedule = plan.schedule
        apart = schedule.resident or schedule.blocks is not None or schedule.subgrid is not None
        strips = any(schedule.strips.count(depth) > 1 for depth in schedule.depths)
        if apart or strips or plan.device is not None or problem.edges.periodic(0):
            return None
        return cls(plan, problem) if schedule.depths and rests(problem) else None

    def arrived(self, get: Get, window: Window) -> None:
        """Look at planes that have come into the window."""
        if self._reads_only(get.field) or get.seam is not None:
            return
        still = [is_still(cells) for cells in window.views(get)]
        self._of(get.trip)[get.first : get.last] -= still

    def parts(self, plan: Plan, window: Any, part: Stretch) -> Iterator[Stretch]:
        """The steps of a stretch that have to be made; rings of the others are +0 then."""
        schedule, trip = plan.schedule, part.trip
        if trip.index == 0 and schedule.begin.planes:  # what its face needs did not come with it
            yield part
            return
        if trip.depth not in self._reaches:
            self._reaches[trip.depth] = Reach.of(self._reads, trip.depth)
        reach = self._reaches[trip.depth]
        steps = np.arange(1, trip.depth + 1)[:, None]
        back = schedule.skew.per_step * steps + np.array(schedule.skew.shifts)
        first = np.clip(part.first - back, 0, self._planes)
        last = np.clip(part.last - back, 0, self._planes)
        moving = np.concatenate(([0], np.cumsum(self._of(trip) > 0)))
        low = np.clip(first + reach.low, 0, self._planes)
        high = np.clip(last + reach.high, 0, self._planes)
        needed = (first < last) & (moving[high] > moving[low])
        rows = len(schedule.stored.rows)
        by_step = needed.any(axis=1)
        self.spared += rows * int((last - first)[~by_step, 0].sum())
        for step in np.flatnonzero(~by_step[: self._deepest_clear]) + 1:
            self._clear(window, trip, int(step), first[step - 1], last[step - 1])
        made = (int(step) for step in np.flatnonzero(by_step) + 1)
        for _, group in groupby(enumerate(made), lambda pair: pair[1] - pair[0]):
            run = [step for _, step in group]
            yield replace(part, since=run[0], until=run[-1])

    @property
    def _deepest_clear(self) -> int:
        return max(rings - levels for made in self._made for _, rings, levels in made)

    def _clear(self, window: Any, trip: Trip, step: int, first: Any, last: Any) -> None:
        """Set planes to +0 in rings that hold a level of the trip for the first time."""
        for stage, made in enumerate(self._made):
            for field, rings, levels in made:
                if step <= rings - levels:
                    planes = range(int(first[stage]), int(last[stage]))
                    for address, nbytes in window.memory(trip, field, step % rings, planes):
                        clear(address, nbytes)

    def _reads_only(self, field: str) -> bool:
        return all(write.field != field for write in self._reads.writings)

    def _of(self, trip: Trip) -> NDArray[np.int64]:
        if trip.index not in self._pending:
            for old in [index for index in self._pending if index <= trip.index - REMEMBERED]:
                del self._pending[old]
            self._pending[trip.index] = self._first.copy()
        return self._pending[trip.index]


def is_still(cells: NDArray[Any]) -> bool:
    """Whether all bytes of the values are 0."""
    if not cells.flags.c_contiguous:
        return not cells.view(f"u{cells.itemsize}").any()
    return all_zero(cells.ctypes.data, cells.nbytes)
