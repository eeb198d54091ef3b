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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.config import RunOptions
from outgrid.observe.observer import Observer, Window
from outgrid.plan.instruction import Get, Stretch
from outgrid.plan.model import Plan
from outgrid.plan.schedule.lifetime import Dependences, dependences
from outgrid.plan.schedule.rings import parts_within
from outgrid.plan.schedule.skew import Reading
from outgrid.plan.schedule.trip import Trip
from outgrid.runs.run import Run
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem
from outgrid.stencil.still import rests
from outgrid.storage.zeroes import all_zero, clear

__all__ = ["Still", "StillPlanes"]

REMEMBERED = 4  # trips that may have planes in the window
NOTHING = 1 << 40  # further than any grid reaches


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


Level = tuple[str, int]  # a field and a time level of it that come with a state: 0 or -1


@dataclass(frozen=True, slots=True)
class Reach:
    """The planes that those of a step hang on, of each level that a sweep begins with.

    Per step, from 1 on, stage and level: all from ``low`` to ``high`` planes further, none if that
    is less.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @classmethod
    def of(cls, reads: Dependences, levels: Sequence[Level], depth: int) -> Reach:
        """That of sweeps of ``depth`` steps."""
        writers = {write.field: write.writer for write in reads.writings}
        shape = depth + 1, reads.stages, len(levels)
        low, high = np.full(shape, NOTHING), np.full(shape, -NOTHING)
        for step, read in product(range(1, depth + 1), sorted(reads.readings, key=_reader)):
            if read.field not in writers:
                continue
            at, made = (step, read.reader), step + read.version
            if made > 0:
                before = made, writers[read.field]
                low[at] = np.minimum(low[at], read.low + low[before])
                high[at] = np.maximum(high[at], read.high + high[before])
            else:
                came = (*at, levels.index((read.field, made)))
                low[came] = min(low[came], read.low)
                high[came] = max(high[came], read.high)
        return cls(low[1:], high[1:])


def _reader(read: Reading) -> int:
    return read.reader


class StillPlanes:
    """The planes of sweeps under way that are known to be still, by what has come of them.

    ``spared`` counts rows of planes times steps that were left out.
    """

    def __init__(self, plan: Plan, problem: Problem) -> None:
        schedule, stencil = plan.schedule, problem.stencil
        self.spared = 0
        self._reads = dependences(stencil, problem.edges)
        arrivals = [arrival for arrival in schedule.arrivals if not arrival.constant]
        self._levels: list[Level] = [(arrival.field, arrival.level) for arrival in arrivals]
        # Of each level the planes that may hold more than +0, before any of them was seen.
        self._unseen = np.zeros((len(arrivals), schedule.planes), bool)
        for level, arrival in zip(self._unseen, arrivals, strict=True):
            for part in parts_within(schedule.bands(arrival.field), range(schedule.planes)):
                level[part.start : part.stop] = True
        self._sources = [cell[0] for one in problem.sources for cell, _ in corners(one.position)]
        self._moving: dict[int, NDArray[np.bool_]] = {}
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
        level = get.field, get.level
        if level not in self._levels or get.seam is not None:
            return
        moving = self._of(get.trip)[self._levels.index(level)]
        moving[get.first : get.last] = [not is_still(cells) for cells in window.views(get)]
        if level == self._levels[0]:
            there = [plane for plane in self._sources if get.first <= plane < get.last]
            moving[there] = True

    def parts(self, plan: Plan, window: Any, part: Stretch) -> Iterator[Stretch]:
        """The steps of a stretch that have to be made; rings of the others are +0 then."""
        schedule, trip = plan.schedule, part.trip
        if trip.index == 0 and schedule.begin.planes:  # what its face needs did not come with it
            yield part
            return
        if trip.depth not in self._reaches:
            self._reaches[trip.depth] = Reach.of(self._reads, self._levels, trip.depth)
        first, last = self._bounds(plan, part)
        needed = self._needed(first, last, self._of(trip), self._reaches[trip.depth])
        self.spared += len(schedule.stored.rows) * int((last - first)[~needed, 0].sum())
        for step in np.flatnonzero(~needed[: self._deepest_clear]) + 1:
            self._clear(window, trip, int(step), first[step - 1], last[step - 1])
        made = (int(step) for step in np.flatnonzero(needed) + 1)
        for _, group in groupby(enumerate(made), lambda pair: pair[1] - pair[0]):
            run = [step for _, step in group]
            yield replace(part, since=run[0], until=run[-1])

    def _bounds(self, plan: Plan, part: Stretch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Per step and stage the planes [first, last) that a stretch updates."""
        skew, planes = plan.schedule.skew, plan.schedule.planes
        back = skew.per_step * np.arange(1, part.trip.depth + 1)[:, None] + np.array(skew.shifts)
        first, last = np.clip(part.first - back, 0, planes), np.clip(part.last - back, 0, planes)
        return first, last

    def _needed(
        self,
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        moving: NDArray[np.bool_],
        reach: Reach,
    ) -> NDArray[np.bool_]:
        """Steps of which a stage may make more than +0."""
        levels, planes = moving.shape
        counted = np.zeros((levels, planes + 1), np.int64)
        np.cumsum(moving, axis=1, out=counted[:, 1:])
        low = np.clip(first[..., None] + reach.low, 0, planes)
        high = np.clip(last[..., None] + reach.high, 0, planes)
        number = np.arange(levels)
        there = (first < last)[..., None] & (counted[number, high] > counted[number, low])
        return (there & (reach.low <= reach.high)).any(axis=(1, 2))

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

    def _of(self, trip: Trip) -> NDArray[np.bool_]:
        """Per level the planes of a trip that may hold more than +0."""
        if trip.index not in self._moving:
            for old in [index for index in self._moving if index <= trip.index - REMEMBERED]:
                del self._moving[old]
            self._moving[trip.index] = self._unseen.copy()
        return self._moving[trip.index]


def is_still(cells: NDArray[Any]) -> bool:
    """Whether all bytes of the values are 0."""
    if not cells.flags.c_contiguous:
        return not cells.view(f"u{cells.itemsize}").any()
    return all_zero(cells.ctypes.data, cells.nbytes)
