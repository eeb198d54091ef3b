"""Planes that a wave has not reached: where all is +0 and stays so, nothing is updated.

A plane that comes into the window with bytes of 0 alone is *still*. What a step makes of a plane
hangs on planes of the state that the sweep began with, at most so far off as the stages read in all
steps up to it. If these are all still, and the stencil `rests`, the plane is +0 after that step.
A slab leaves out the steps of which that holds for all of its planes.

What is left out is not stored either. A ring in which the level before was lies as it was, and
holds +0 already; one that no plane has come into is cleared when the first level would have been
stored there. Nor is it moved: a plane of +0 is not written to a file that holds +0 there, since it
was made, and what was left out there is not read by the next sweep. Where a plane of +0 lay in the
window before nothing is cleared. Nor are coefficients read that no step of a sweep is going to ask
for, as far as the sweep before has told what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.config import RunOptions
from outgrid.observe.observer import Observer, Window
from outgrid.observe.watch import Watch
from outgrid.plan.instruction import Get, Move, Put, Stretch
from outgrid.plan.model import Plan
from outgrid.plan.schedule.lifetime import Dependences, dependences
from outgrid.plan.schedule.rings import parts_within
from outgrid.plan.schedule.skew import Reading
from outgrid.plan.schedule.trip import Trip, remember
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem
from outgrid.stencil.still import rests
from outgrid.storage.zeroes import alike, all_zero, clear

__all__ = ["Seen", "Still", "StillPlanes"]

NOTHING = 1 << 40  # further than any grid reaches

Place = tuple[int, int]  # the row and the column of a cell in its plane


class Seen(Window, Protocol):
    """Planes in memory, of which some values tell at once that a plane is not still."""

    def some_set(self, move: Move, places: Sequence[Place], /) -> NDArray[np.bool_]:
        """Of each plane that a transfer moves, whether a value at one of ``places`` is not +0."""
        ...

    def slot_memory(self, field: str, index: int, slot: int, /) -> Iterator[tuple[int, int]]:
        """Address and bytes of each part of a slot of a ring that is written to."""
        ...


class Still(Observer):
    """Looks at planes that come in, and lets a kernel leave out what stays +0."""

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where updates that are not made can be told from the problem."""
        return not problem.stencil.reductions and not problem.series

    def attach(self, kernel: Any) -> Any:
        """A kernel that knows of still planes, where there may be any."""
        watch = getattr(kernel, "watch", None)
        planes = (
            StillPlanes.of(self.run.plan, self.run.form_of(self.run.problem), watch)
            if watch
            else None
        )
        if planes is None:
            return kernel
        self.arriving: Any = planes.arrived
        return replace(kernel, still=planes)


Level = tuple[str, int]  # a field and a time level of it that come with a state: 0 or -1


class Reach(msgspec.Struct, frozen=True):
    """The planes that those of a step hang on, of each level that a sweep begins with.

    Per step, from 1 on, stage and level: all from ``low`` to ``high`` planes further, none if that
    is less. After the levels come fields to which sources add in every step.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @classmethod
    def of(
        cls, reads: Dependences, levels: Sequence[Level], driven: Sequence[str], depth: int
    ) -> Reach:
        """That of sweeps of ``depth`` steps."""
        writers = {write.field: write.writer for write in reads.writings}
        shape = depth + 1, reads.stages, len(levels) + len(driven)
        low, high = np.full(shape, NOTHING), np.full(shape, -NOTHING)
        for number, name in enumerate(driven, len(levels)):
            low[:, writers[name], number] = high[:, writers[name], number] = 0
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

    ``spared`` counts rows of planes times steps that were left out. That ends where ``watch`` does:
    what is not watched may hold what is no finite number, and +0 times that is not 0.
    """

    def __init__(self, plan: Plan, problem: Problem, watch: Watch) -> None:
        schedule, stencil = plan.schedule, problem.stencil
        self._watch = watch
        self.spared = 0
        self._reads = dependences(stencil, problem.edges)
        arrivals = [arrival for arrival in schedule.arrivals if not arrival.constant]
        self._levels: list[Level] = [(arrival.field, arrival.level) for arrival in arrivals]
        # Of each level the planes that may hold more than +0, before any of them was seen.
        self._unseen = np.zeros((len(arrivals), schedule.planes), bool)
        for level, arrival in zip(self._unseen, arrivals, strict=True):
            for part in parts_within(schedule.bands(arrival.field), range(schedule.planes)):
                level[part.start : part.stop] = True
        # A source moves what it adds to in every step, whatever comes: one more row for its field.
        self._driven = sorted({source.field for source in problem.sources})
        driven = np.zeros((len(self._driven), schedule.planes), bool)
        for source in problem.sources:
            for (plane, *_), _ in corners(source.position):
                driven[self._driven.index(source.field), plane] = True
        self._unseen = np.concatenate((self._unseen, driven))
        self._places = {field.name: _places(problem, field.name) for field in stencil.evolving}
        self._moving: dict[int, NDArray[np.bool_]] = {}
        self._reaches: dict[int, Reach] = {}
        # What files hold as +0 that was not written, by state; slots of rings that may hold more.
        self._left = np.zeros((2, len(arrivals), schedule.planes), bool)
        self._told = np.full(self._left.shape, -1)  # the state of which that is known
        self._used = {
            (ring.field, ring.index): np.ones(ring.planes, bool) for ring in schedule.rings
        }
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
    def of(cls, plan: Plan, problem: Problem, watch: Watch) -> StillPlanes | None:
        """None where nothing can be left out.

        Planes pass through the window as a whole, of one rank, in the memory of the processor.
        """
        schedule = plan.schedule
        apart = schedule.resident or schedule.subgrid is not None or not schedule.whole_planes
        if apart or plan.device is not None or problem.edges.periodic(0):
            return None
        return cls(plan, problem, watch) if schedule.depths and rests(problem) else None

    def known(self, plan: Plan, move: Get | Put, window: Seen) -> NDArray[np.bool_]:
        """Which planes of a move are +0, in the window as well."""
        planes = range(move.first, move.last)
        number = self._number(move)
        if number is None:
            reads = isinstance(move, Get)
            return self._needless(plan, move) if reads else np.zeros(len(planes), bool)
        if isinstance(move, Get):
            ring = move.field, move.ring
            known = self._left[move.state % 2, number, move.first : move.last].copy()
            for run in alike(known):
                part = planes[run]
                if known[run.start]:
                    self._clear(plan, window, move.trip, ring, part)
                else:
                    self._used[ring][self._slots(plan, move.trip, ring, part)] = True
            return known
        if not self._looks(plan, move.trip):
            return np.zeros(len(planes), bool)
        reach, moving = self._reach(move.trip), self._of(move.trip)
        step = move.trip.depth + move.level
        if step < 1:  # as it came, which was as the level after it if a sweep has one step
            return ~moving[self._levels.index((move.field, step)), move.first : move.last]
        writer = next(w.writer for w in self._reads.writings if w.field == move.field)
        low, high = reach.low[step - 1, writer], reach.high[step - 1, writer]
        # Behind a wave what a plane was tells that it moves, and nothing else is looked at.
        if low[number] <= 0 <= high[number] and moving[number, move.first : move.last].all():
            return np.zeros(len(planes), bool)
        first = np.arange(move.first, move.last)
        return ~_any_within(moving, first[:, None] + low, first[:, None] + 1 + high)

    def _needless(self, plan: Plan, get: Get) -> NDArray[np.bool_]:
        """Which planes of a coefficient no step of a trip will read.

        Steps are made in all planes of a slab, whichever needs them. What is not watched any more
        is updated everywhere: so not before all that a run begins with has been looked at.
        """
        trip, schedule = get.trip, plan.schedule
        if trip.index < 2 or not self._looks(plan, trip):
            return np.zeros(get.last - get.first, bool)
        moving, levels = self._unseen.copy(), len(self._levels)
        left, told = self._left[trip.sweep % 2], self._told[trip.sweep % 2]
        moving[:levels] &= ~(left & (told == trip.sweep))
        reach, shifts = self._reach(trip), schedule.skew.shifts
        beside = schedule.slab_planes - 1 + max(shifts) - min(shifts)
        reads = [read for read in self._reads.readings if read.field == get.field]
        low = reach.low.min(axis=(0, 1)) - max(read.high for read in reads) - beside
        high = reach.high.max(axis=(0, 1)) - min(read.low for read in reads) + beside
        planes = np.arange(get.first, get.last)[:, None]
        return ~_any_within(moving, planes + low, planes + 1 + high)

    def left(self, put: Put, known: NDArray[np.bool_]) -> None:
        """Which planes of a put were not written, since their files hold +0 there."""
        number = self._number(put)
        if number is not None:
            self._left[put.state % 2, number, put.first : put.last] = known
            self._told[put.state % 2, number, put.first : put.last] = put.state

    def arrived(self, get: Get, window: Seen) -> None:
        """Look at planes that have come into the window."""
        number = self._number(get)
        if number is None:
            return
        moving = self._of(get.trip)[number, get.first : get.last]
        moving[:] = ~self._left[get.state % 2, number, get.first : get.last]
        for plane in np.flatnonzero(moving & ~window.some_set(get, self._places[get.field])):
            (cells,) = window.views(get, slice(plane, plane + 1))
            moving[plane] = not all_zero(cells)

    def parts(self, plan: Plan, window: Seen, part: Stretch) -> Iterator[Stretch]:
        """The steps of a stretch that have to be made; rings of the others are +0 then."""
        trip, count = part.trip, plan.schedule.passage(part.trip).row_updates_of
        first, last = self._bounds(plan, part)
        needed = self._needed(plan, trip, first, last)
        self._prepare(plan, window, trip, needed, first, last)
        for run in alike(needed):
            if needed[run.start]:
                yield replace(part, since=run.start + 1, until=run.stop)
            else:
                self.spared += count(part.first, part.last, range(run.start + 1, run.stop + 1))

    def _needed(
        self, plan: Plan, trip: Trip, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Of each step of a trip, whether it may make more than +0 of planes [first, last)."""
        moving = self._of(trip)
        if moving[: len(self._levels)].all() or not self._looks(plan, trip):
            return np.ones(trip.depth, bool)
        reach = self._reach(trip)
        some = _any_within(moving, first[..., None] + reach.low, last[..., None] + reach.high)
        needed: NDArray[np.bool_] = np.any(some & (first < last), axis=1)
        return needed

    def _prepare(
        self,
        plan: Plan,
        window: Seen,
        trip: Trip,
        needed: NDArray[np.bool_],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
    ) -> None:
        """Clear what holds a level for the first time and is left out; note what is stored."""
        stored = np.flatnonzero(needed)
        for stage, made in enumerate(self._made):
            for field, rings, levels in made:
                for step in np.flatnonzero(~needed[: rings - levels]) + 1:
                    planes = range(int(first[step - 1, stage]), int(last[step - 1, stage]))
                    self._clear(plan, window, trip, (field, int(step) % rings), planes)
                if len(stored):
                    planes = range(int(first[stored[-1], stage]), int(last[stored[0], stage]))
                    for ring in range(rings):
                        self._used[field, ring][self._slots(plan, trip, (field, ring), planes)] = (
                            True
                        )

    def _looks(self, plan: Plan, trip: Trip) -> bool:
        """Whether what a trip begins with is known: a face needs more than comes with it."""
        return not (self._watch.stopped or (trip.index == 0 and plan.schedule.begin.planes))

    def _reach(self, trip: Trip) -> Reach:
        if trip.depth not in self._reaches:
            self._reaches[trip.depth] = Reach.of(
                self._reads, self._levels, self._driven, trip.depth
            )
        return self._reaches[trip.depth]

    def _bounds(self, plan: Plan, part: Stretch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Per step and stage the planes [first, last) that a stretch updates."""
        skew, planes = plan.schedule.skew, plan.schedule.planes
        back = skew.per_step * np.arange(1, part.trip.depth + 1)[:, None] + np.array(skew.shifts)
        first, last = np.clip(part.first - back, 0, planes), np.clip(part.last - back, 0, planes)
        return first, last

    def _number(self, move: Get | Put) -> int | None:
        """The number of the level that is moved; None for coefficients and seams."""
        level = move.field, move.level
        return self._levels.index(level) if level in self._levels and move.seam is None else None

    def _slots(
        self, plan: Plan, trip: Trip, ring: tuple[str, int], planes: range
    ) -> NDArray[np.int64]:
        """The slots of planes in a ring."""
        places = plan.schedule.passage(trip).places(plan.schedule.ring_of[ring], planes)
        return np.array(places, np.int64) % len(self._used[ring])

    def _clear(
        self, plan: Plan, window: Seen, trip: Trip, ring: tuple[str, int], planes: range
    ) -> None:
        """Set planes of a ring to +0 that may hold more."""
        slots, used = self._slots(plan, trip, ring, planes), self._used[ring]
        for slot in slots[used[slots]].tolist():
            for address, nbytes in window.slot_memory(*ring, slot):
                clear(address, nbytes)
        used[slots] = False

    def _of(self, trip: Trip) -> NDArray[np.bool_]:
        """Per level, and field of sources, the planes of a trip that may hold more than +0."""
        known = self._moving.get(trip.index)
        return remember(self._moving, trip.index, self._unseen.copy()) if known is None else known


def _places(problem: Problem, name: str) -> tuple[Place, ...]:
    """A few places in the planes of a field: in each box of its region, if it has one."""
    whole = tuple(range(extent) for extent in problem.shape)
    found: set[Place] = set()
    for box in problem.regions.get(name, (whole,)):
        rows = box[1] if len(box) == 3 else range(1)
        found |= {*product(_quarters(rows), _quarters(box[-1]))}
    return tuple(sorted(found))


def _quarters(part: range) -> list[int]:
    """Where one, two and three quarters of a range end."""
    return [part.start + len(part) * quarter // 4 for quarter in (1, 2, 3)]


def _any_within(
    moving: NDArray[np.bool_], low: NDArray[np.int64], high: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether there is a moving plane in [low, high) of any level, which is the last axis."""
    levels, planes = moving.shape
    low, high = np.clip(low, 0, planes), np.clip(high, 0, planes)
    first, last = int(low.min()), int(high.max())  # outside of which nobody asks
    low, high = low - first, np.clip(high - first, 0, None)
    counted = np.zeros((levels, max(0, last - first) + 1), np.int64)
    np.cumsum(moving[:, first:last], axis=1, out=counted[:, 1:])
    low = np.minimum(low, high)
    number = np.arange(levels, dtype=np.int64)
    there = counted[number, high] > counted[number, low]
    found: NDArray[np.bool_] = np.any(there & (low < high), axis=-1)
    return found
