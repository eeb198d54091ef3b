"""From a problem to its schedules: rings and seams for any depths, slab and strips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from outgrid.plan.layout import layout
from outgrid.plan.model import Layout
from outgrid.plan.schedule.lifetime import (
    Dependences,
    Lifetime,
    dependences,
    field_is_constant,
    lifetimes,
    needed_from,
    ring_count,
    write_shift,
)
from outgrid.plan.schedule.model import ACROSS, STREAMED, Schedule
from outgrid.plan.schedule.rings import Arrival, Departure, Ring
from outgrid.plan.schedule.seam import Cut, Seam, seam
from outgrid.plan.schedule.skew import Halo, Skew
from outgrid.plan.schedule.strips import Strips
from outgrid.plan.schedule.subgrid import Box, Subgrid
from outgrid.plan.schedule.trip import mirrored
from outgrid.plan.traffic import Traffic
from outgrid.stencil.problem import Problem

# Planes of slack, in slabs, between the write of a place and its next read: one slab under the
# front, one being written, one being read ahead.
TURNAROUND_SLABS = 3


@dataclass(frozen=True)
class Sizing:
    """What follows from a problem alone, for any depth and slab; remembers what it derived.

    Of a ``subgrid``, if there is one, else of the whole grid.
    """

    problem: Problem
    subgrid: Subgrid | None = None

    @property
    def planes(self) -> int:
        """Planes of the grid."""
        return self.problem.shape[0]

    @property
    def rows(self) -> int:
        """Rows of a plane of the grid; 1 in 2-D."""
        return self.problem.shape[1] if self.problem.ndim == 3 else 1

    @property
    def cells_per_plane(self) -> int:
        """Cells of one plane, those of the fixed layer included."""
        return self.rows * self.problem.shape[-1]

    @property
    def owned(self) -> Box:
        """What is carried from state to state."""
        if self.subgrid is not None:
            return self.subgrid.owned
        return Box(range(self.planes), range(self.rows))

    @property
    def with_seams(self) -> bool:
        """Whether it is of a rank that leaves seams at its cuts, or takes them."""
        return self.subgrid is not None and self.subgrid.seams

    @property
    def updates(self) -> int:
        """Cell updates that are needed: interior cells times steps, of what is owned."""
        problem = self.problem
        if self.subgrid is None or not problem.steps:
            return problem.updates
        inside = Box(problem.interior[0], problem.interior[1] if problem.ndim == 3 else range(1))
        return problem.updates // inside.count * self.owned.common(inside).count

    def schedule(
        self,
        depths: tuple[int, ...],
        slab: int,
        resident: bool = False,
        strips: Strips | None = None,
    ) -> Schedule:
        """The schedule of sweeps of ``depths`` steps, in whole planes or ``strips``."""
        deepest = max(depths, default=0)
        strips = strips or self.strips(deepest)
        seams = self.seams(depths, resident, strips)
        found = Schedule(
            shape=self.problem.shape,
            depths=depths,
            slab_planes=slab,
            skew=self.skew,
            pitch_planes=0,
            strips=strips,
            resident=resident,
            rings=self.rings(depths, slab, resident, bool(seams)),
            arrivals=self.arrivals,
            departures=self.departures,
            face=self.face,
            seams=seams,
            subgrid=self.subgrid,
        )
        return replace(found, pitch_planes=self._pitch_planes(found))

    def traffic(self, found: Schedule) -> Traffic:
        """What moves by a schedule."""
        return Traffic(found, self.row_bytes)

    @cached_property
    def halo(self) -> Halo:
        """What a part of the grid needs beyond the planes that it makes."""
        return self.found.halo()

    @cached_property
    def row_halo(self) -> Halo:
        """What a part of the grid needs beyond the rows that it makes; nothing in 2-D."""
        if self.problem.ndim == 2:
            none = (0,) * len(self.problem.stencil.stages)
            return Halo(0, none, none)
        return self.across.halo()

    @cached_property
    def found(self) -> Dependences:
        """Readings and writings along the streamed axis, in the direction of the stream."""
        found = dependences(self.problem.stencil, self.problem.edges)
        return found.mirrored() if self.subgrid is not None and self.subgrid.downward else found

    @cached_property
    def skew(self) -> Skew:
        """Planes by which a step trails the one before it."""
        return self.found.skew()

    @cached_property
    def face(self) -> Skew:
        """How the first updated plane rises, step by step, where a sweep begins inside the grid."""
        return self.found.face()

    @property
    def closed(self) -> bool:
        """Whether the first plane is the neighbour of the last one."""
        return self.problem.edges.periodic(0)

    def seams(
        self, depths: Iterable[int], resident: bool = False, strips: Strips | None = None
    ) -> tuple[Seam, ...]:
        """The seams of sweeps of each depth: at cuts, between strips, and where axes close.

        In whole planes, unless there are ``strips``. A ``resident`` grid that closes has none where
        it has too few planes for a front that goes over it, or one step at a time to make: all
        planes then make each step together.
        """
        found = tuple(
            each
            for depth in sorted({*depths} - {0})
            for each in self._seams(depth, strips, resident=resident)
        )
        if not resident or not self.closed:
            return found
        few = any(each.reach > self.planes for each in found)
        return () if few or max(depths, default=0) < 2 else found

    def _seams(self, depth: int, strips: Strips | None, *, resident: bool) -> tuple[Seam, ...]:
        """Those of sweeps of ``depth`` steps, which are few."""
        cut = strips is not None and not resident and strips.count(depth) > 1
        circle = strips is not None and strips.circle
        if (depth, cut, circle) not in self._known_seams:
            found = [
                # The end of the rank that gives rises above a cut, and falls below.
                self._seam(STREAMED, depth, rises=each.given != each.above, cut=each)
                for each in self._cuts
            ]
            if cut:
                leads = {
                    field.name: tuple(self._row_lead(field.name, -n) for n in range(field.levels))
                    for field in self.problem.stencil.fields
                }
                found.append(self._seam(ACROSS, depth, rises=False, crossed=True, leads=leads))
            if cut and circle:
                found.append(self._seam(ACROSS, depth, closes=True, crossed=self.closed))
            if self.closed:
                found.append(self._seam(STREAMED, depth, closes=True, crossed=cut))
            self._known_seams[depth, cut, circle] = tuple(found)
        return self._known_seams[depth, cut, circle]

    @cached_property
    def _known_seams(self) -> dict[tuple[int, bool, bool], tuple[Seam, ...]]:
        return {}

    @property
    def _cuts(self) -> Iterable[Cut]:
        """The cuts of a rank at which seams are left or taken."""
        if self.subgrid is None or not self.subgrid.seams:
            return
        planes = self.owned.planes
        planes = mirrored(planes, self.planes) if self.subgrid.downward else planes
        for above, at in ((False, planes.start), (True, planes.stop)):
            peer = self.subgrid.beside(above)
            if peer is not None:
                yield Cut(at, peer, above, self.subgrid.upright)

    def _seam(self, axis: int, depth: int, **given: Any) -> Seam:
        found = (self.found, self.across)[axis]
        return seam(axis, found, self._levels, depth, **given)

    def least_owned(self, depths: Iterable[int]) -> int:
        """Planes that a rank must own for sweeps of ``depths`` steps if it leaves seams.

        What it leaves at its cuts has to be apart.
        """
        given: dict[int, int] = {}
        for each in self.seams(depths):
            if each.cut is not None and each.cut.given:
                given[each.depth] = given.get(each.depth, 0) + each.reach
        if self.subgrid is not None and not self.subgrid.upright:
            return 1
        return max(given.values(), default=0)

    def least_planes(self, depths: tuple[int, ...], slab: int) -> int:
        """Planes that a grid must have for streamed sweeps.

        The first planes of a closed grid have left the window before they come round again.
        """
        if not self.closed or not depths:
            return 1
        rings = self.rings(depths, slab, resident=False, seams=True)
        longest = max(ring.high - ring.low for ring in rings)
        most = max(each.reach for each in self.seams(depths))
        return max(longest + TURNAROUND_SLABS * slab, most)

    @cached_property
    def across(self) -> Dependences:
        """Readings and writings along the rows."""
        return dependences(self.problem.stencil, self.problem.edges, axis=1)

    @cached_property
    def fall(self) -> Skew:
        """How borders of strips fall, step by step; not at all where planes are not cut."""
        return self.across.skew() if self.can_cut else self._upright

    @cached_property
    def row_face(self) -> Skew:
        """How the first updated row rises where strips go round a circle."""
        return self.across.face() if self.circle else self._upright

    @property
    def _upright(self) -> Skew:
        return Skew(0, (0,) * len(self.problem.stencil.stages))

    @property
    def can_cut(self) -> bool:
        """Whether planes may pass in strips: those of a whole grid, in 3-D."""
        return self.problem.ndim == 3 and self.subgrid is None

    @property
    def circle(self) -> bool:
        """Whether strips go round a circle."""
        return self.can_cut and self.problem.edges.periodic(1)

    def strips(self, depth: int, height: int | None = None) -> Strips:
        """Strips of ``height`` rows, or whole planes, for sweeps of up to ``depth`` steps."""
        edges = self.fall, self.row_face, self._row_reach
        if height is None:
            whole = Strips(self.rows, self.rows, *edges)
            return replace(whole, height=self.rows + whole.lean(depth))
        return Strips(self.rows, height, *edges, self.circle)

    @cached_property
    def _row_reach(self) -> int:
        """Rows that steps reach beyond those of a strip and the skew of its ends."""
        if not self.can_cut:
            return 0
        found = [(self.across, self.fall)]
        if self.circle:
            found.append((self.across.mirrored(), self.row_face))
        return max(
            skew.shifts[read.reader] - read.low for each, skew in found for read in each.readings
        )

    @cached_property
    def _levels(self) -> dict[str, tuple[int, int]]:
        """(time levels, rings) of each evolving field."""
        stencil = self.problem.stencil
        return {each.name: (each.levels, ring_count(each, stencil)) for each in stencil.evolving}

    def layout(self, strips: Strips, depth: int) -> Layout:
        """Planes and rows in the window."""
        held = self.subgrid.held(depth).rows if self.subgrid is not None else range(self.rows)
        cut = strips.count(depth) > 1
        window = strips.window_rows(depth) if cut else len(held)
        return layout(self.problem.shape, self.problem.dtype, window, self.problem.dtypes)

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """Levels that enter the window in every sweep."""
        return tuple(
            Arrival(field.name, level, self._lead(field.name, level), not field.evolving)
            for field in self.problem.stencil.fields
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    def _lead(self, field: str, level: int) -> int:
        return needed_from(field, level, self.found, self.skew)

    def _row_lead(self, field: str, level: int) -> int:
        """Rows by which the first step that reads ``level`` (0 or -1) trails what it needs."""
        return needed_from(field, level, self.across, self.fall)

    @cached_property
    def departures(self) -> tuple[Departure, ...]:
        """Levels that leave the window in every sweep."""
        return tuple(
            Departure(
                field.name,
                level,
                write_shift(field.name, self.found, self.skew),
                self._lead(field.name, 0),
            )
            for field in self.problem.stencil.evolving
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    @cached_property
    def row_bytes(self) -> dict[str, int]:
        """Bytes of a row on disk, by field."""
        fields = self.problem.stencil.fields
        return {field.name: self.problem.row_bytes(field.name) for field in fields}

    def _pitch_planes(self, found: Schedule) -> int:
        """Planes of the stream from one trip to the next, a multiple of the slab.

        Levels leave one after the other. A sweep begins so late that none of its levels leaves
        before the last one of the sweep before: that write would wait for a commit that waits for
        writes queued behind it. Between strips a trip reads what the one before it leaves when it
        reads a plane for the last time, and leaves its own seam after all that the one before
        leaves. Only sweeps of unequal depths overtake one another.
        """
        depth, slab = found.depth, found.slab_planes
        if found.resident:
            least = self.whole_planes(depth)
            # Planes that come round leave at the end of a sweep, before the next one touches them.
            least += min(slab, found.lean(depth)) if found.closes else 0
            return -(-least // slab) * slab
        cut = found.strips.count(depth) > 1
        reach = self.skew.per_step * depth + max(self.skew.shifts)
        reach += self.problem.stencil.radius[0] if cut else 0
        lags = {each: self._put_lags(found, each) for each in {depth, *found.depths}}
        ahead = [0, max(lags[depth]) - min(lags[depth]) - 1]
        ahead += [max(lags[last]) - min(lags[first]) - 1 for last, first in pairwise(found.depths)]
        ahead += self._seams_ahead(found, lags, cut=cut)
        closing = found.closing(depth, STREAMED)
        again = closing.reach if closing is not None else 0
        apart = len(found.stored.planes) + max(again, *ahead)
        if any(found.cuts(depth)):
            apart = max(apart, self._pitch_of_cuts(found))
        if self.closed:  # the first planes are the last ones that a sweep writes
            reach += len(found.stored.planes)
        least = max(apart, reach + TURNAROUND_SLABS * slab)
        return -(-least // slab) * slab

    def _pitch_of_cuts(self, found: Schedule) -> int:
        """Planes between sweeps of a rank so that none waits for what comes after the one before.

        All that a sweep leaves, seams and what is returned included, leaves before the next one
        writes: that waits until all ranks have done with the sweep. A taker has left all of a sweep
        before it needs the first seam of the next, and a giver what leads to a plane that is
        returned before it needs that plane.
        """
        begins, ends, least = list[int](), list[int](), [0]
        for depth in {*found.depths}:
            passage = next(found.sweep(depth))
            last = [passage.front_end - 1]
            wanted: dict[int, int] = {}
            for departure in found.departures:
                lag = departure.lag(depth, found.skew.per_step)
                left = [passage.leaving(departure).planes]
                for cut, planes in passage.returned(departure):
                    left += [] if cut.given else [planes]
                    wanted[cut.above] = min(planes.start, wanted.get(cut.above, planes.start))
                begins.append(min(each.start for each in left) + lag)
                last.append(max(each.stop for each in left) - 1 + lag)
            for share in passage.taken():
                begins.append(share.planes.start + share.ring.low - found.slab_planes)
            for share in passage.given():
                left = min(share.planes.stop - 1 + share.ring.high, max(last))
                least.append(left - wanted[share.key.place] + found.slab_planes + 1)
            ends.append(max(last))
            least.append(len(found.interval(STREAMED, depth).read))
        return max(max(ends) - min(begins) + 1, *least)

    def _seams_ahead(self, found: Schedule, lags: dict[int, list[int]], *, cut: bool) -> list[int]:
        """Planes by which the first of what a trip leaves would overtake the last seam before.

        A restart within the trip needs that seam as a whole.
        """
        highs = {
            (ring.field, ring.index): ring.high
            for ring in found.rings
            if ring.field in self._levels
        }
        last = max(max(each) for each in lags.values())
        if self.closed:
            stairs = [stair for each in self.seams(lags) for stair in each.stairs]
            return [last - stair.low - highs[stair.field, stair.index] - 1 for stair in stairs]
        if not cut:
            return []
        first = min(*highs.values(), *(min(each) for each in lags.values()))
        return [max(last, *highs.values()) - first - 1]

    def _put_lags(self, found: Schedule, depth: int) -> list[int]:
        """Front positions, from a sweep's first one on, at which its levels begin to leave."""
        closing, lags = found.closing(depth, STREAMED), list[int]()
        for each in self.departures:
            turn = closing.edge(each.field, depth + each.level) if closing is not None else 0
            lags.append(each.lag(depth, self.skew.per_step) + turn)
        return lags

    def whole_planes(self, depth: int) -> int:
        """A slab in which a whole sweep of ``depth`` steps begins and ends."""
        return self.planes + self.skew.per_step * depth + max(self.skew.shifts)

    def rings(
        self, depths: tuple[int, ...], slab: int, resident: bool, seams: bool = False
    ) -> tuple[Ring, ...]:
        """All rings of the window, just large enough for full overlap of I/O and computation.

        With ``seams`` every ring of an evolving field has something to read and to write. None
        where there is no sweep.
        """
        if not depths:
            return ()
        sweeps = sweeps_by_base(depths, resident)
        return tuple(
            Ring(
                field.name,
                index,
                self._ring_planes(field.name, index, life, sweeps, slab, resident, seams),
                life.low,
                life.high,
            )
            for field in self.problem.stencil.fields
            for index, life in enumerate(self._lives(field.name, sweeps))
        )

    def _lives(self, field: str, sweeps: frozenset[tuple[int, int]]) -> tuple[Lifetime, ...]:
        """Lifetimes that begin no later than arrival, which is timed for sweeps of any depth."""
        rings = ring_count(self.problem.stencil.field(field), self.problem.stencil)
        lives = list(lifetimes(field, rings, self.found, self.skew, sweeps))
        for arrival in self.arrivals:
            if arrival.field == field:
                life = lives[arrival.level % rings]
                lives[arrival.level % rings] = Lifetime(min(life.low, arrival.lead), life.high)
        return tuple(lives)

    def _ring_planes(
        self,
        field: str,
        index: int,
        life: Lifetime,
        sweeps: frozenset[tuple[int, int]],
        slab: int,
        resident: bool,
        seams: bool,
    ) -> int:
        if resident:
            return self.planes
        if seams and not field_is_constant(field, self.found):
            return life.span + 3 * slab
        rings = ring_count(self.problem.stencil.field(field), self.problem.stencil)
        spare = 0
        if any(a.field == field and a.level % rings == index for a in self.arrivals):
            spare += slab  # the next slab is being read
        if not field_is_constant(field, self.found) and any(
            d.field == field and (base + depth + d.level) % rings == index
            for d in self.departures
            for base, depth in sweeps
        ):
            spare += slab  # the last slab is being written
        return life.span + slab + spare


def sweeps_by_base(depths: tuple[int, ...], resident: bool) -> frozenset[tuple[int, int]]:
    """Distinct (base, depth) of the sweeps, bases modulo the numbers of rings in use (1, 2, 3)."""
    found: set[tuple[int, int]] = set()
    base = 0
    for depth in depths:
        found.add((base % 6 if resident else 0, depth))
        base += depth
    return frozenset(found)


def split_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep, none above ``depth``, balanced and even where possible, shorter first.

    Shorter first because a shorter sweep that follows a longer one would overtake its last
    planes; even because then results leave from the ring that they arrived in.
    """
    rest, each, others = _balanced(steps, depth)
    return (rest, *([each] * others)) if steps else ()


def deepest_of_split(steps: int, depth: int) -> int:
    """The deepest sweep of `split_steps`, without listing all of them."""
    rest, each, others = _balanced(steps, depth)
    return each if others else rest


def _balanced(steps: int, depth: int) -> tuple[int, int, int]:
    """(steps of the first sweep, of each other one, how many others) of `split_steps`."""
    if steps == 0:
        return 0, 0, 0
    sweeps = -(-steps // depth)
    each = -(-steps // sweeps)
    if each % 2 and each < depth:
        each += 1
    sweeps = -(-steps // each)  # an even depth may need one sweep less
    return steps - (sweeps - 1) * each, each, sweeps - 1


def sweep_steps(problem: Problem, depth: int, *, given: bool) -> tuple[int, ...]:
    """Steps per sweep of a problem: sweeps end wherever the run may end.

    A ``depth`` that was asked for is kept where it is ``given``, else it is balanced.
    """
    split = given_steps if given else split_steps
    return tuple(each for stretch in problem.stretches for each in split(stretch, depth))


def given_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep where the depth was asked for: first what is over, then that depth."""
    full, rest = divmod(steps, depth)
    return (*((rest,) if rest else ()), *([depth] * full))
