"""From a depth and a slab to rings and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from outgrid.plan.layout import layout
from outgrid.plan.lifetime import (
    Dependences,
    Lifetime,
    dependences,
    field_is_constant,
    lifetimes,
    needed_from,
    ring_count,
    write_shift,
)
from outgrid.plan.model import Arrival, Departure, Layout, Ring
from outgrid.plan.skew import Skew
from outgrid.plan.strips import Strips
from outgrid.stencil.model import Field
from outgrid.stencil.problem import Problem

# Planes of slack, in slabs, between the write of a place and its next read: one slab under the
# front, one being written, one being read ahead.
TURNAROUND_SLABS = 3


@dataclass(frozen=True)
class Sizing:
    """What follows from a problem alone, for any depth and slab; remembers what it derived."""

    problem: Problem

    @cached_property
    def found(self) -> Dependences:
        """Readings and writings along the streamed axis."""
        return dependences(self.problem.stencil, self.problem.edges)

    @cached_property
    def skew(self) -> Skew:
        """Planes by which a step trails the one before it."""
        return self.found.skew()

    @cached_property
    def row_skew(self) -> int:
        """Rows by which a step of a strip leans; 0 where planes are not cut."""
        return self.problem.stencil.radius[1] if self.can_cut else 0

    @property
    def can_cut(self) -> bool:
        """Whether planes may pass in strips: in 3-D, for stencils of one stage, with ends in y."""
        problem = self.problem
        ends = not (problem.edges.periodic(0) or problem.edges.periodic(1))
        return problem.ndim == 3 and len(problem.stencil.stages) == 1 and ends

    def strips(self, depth: int, height: int | None = None) -> Strips:
        """Strips of ``height`` rows, or whole planes, for sweeps of up to ``depth`` steps."""
        rows = self.problem.shape[1] if self.problem.ndim == 3 else 1
        if height is None:
            return Strips.whole(rows, self.row_skew, depth)
        return Strips(rows, height, self.row_skew)

    def layout(self, strips: Strips, depth: int) -> Layout:
        """Planes and rows in the window."""
        cut = strips.count(depth) > 1
        held = strips.window_rows(depth) if cut else None
        return layout(self.problem.shape, self.problem.dtype, held)

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """Levels that enter the window in every sweep."""
        return tuple(
            Arrival(
                field.name,
                level,
                self._lead(field.name, level),
                not field.evolving,
                self._row_lead(field, level),
            )
            for field in self.problem.stencil.fields
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    def _lead(self, field: str, level: int) -> int:
        return needed_from(field, level, self.found, self.skew)

    def _row_lead(self, field: Field, level: int) -> int:
        """Rows by which the first step that reads ``level`` (0 or -1) trails what it needs.

        A fixed cell reads its own level one step back, whatever the rule reads.
        """
        if not self.row_skew:
            return 0
        found = [self.row_skew]
        for read in range(1 - field.levels, 1):
            reach = self.problem.stencil.reach(field.name, read)
            step = level + 1 - read
            if reach is not None and step >= 1:
                found.append(self.row_skew * step - reach[1][1])
        return min(found)

    @cached_property
    def departures(self) -> tuple[Departure, ...]:
        """Levels that leave the window in every sweep."""
        return tuple(
            Departure(
                field.name,
                level,
                write_shift(field.name, self.found, self.skew),
                self._lead(field.name, 0),
                self._row_lead(field, 0),
            )
            for field in self.problem.stencil.evolving
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    @property
    def level_bytes(self) -> int:
        """Bytes of one time level of one field on disk."""
        return self.problem.field_bytes

    def moved_bytes(self, depths: tuple[int, ...], strips: Strips) -> tuple[int, int]:
        """Bytes that sweeps of ``depths`` steps (read, write), seams included."""
        each = {depth: self._moved_rows(depth, strips) for depth in set(depths)}
        row_bytes = self.problem.shape[0] * self.problem.shape[-1] * self.problem.item_bytes
        read, written = (sum(each[depth][way] for depth in depths) for way in (0, 1))
        return read * row_bytes, written * row_bytes

    def _moved_rows(self, depth: int, strips: Strips) -> tuple[int, int]:
        """Rows of each plane that a sweep (reads, writes)."""
        read = written = 0
        seams, last = self.seams(depth, strips).values(), strips.count(depth) - 1
        for trip in strips.trips((depth,), self.problem.shape[0]):
            for arrival in self.arrivals:
                rows = strips.constant if arrival.constant else strips.owned
                read += len(rows(trip, arrival.row_lead))
            for departure in self.departures:
                written += len(strips.owned(trip, departure.row_lag(depth, strips.skew)))
            for most, least in seams:
                if trip.part > 0:
                    read += len(strips.clip(trip.rows.low - most, trip.rows.low - least))
                if trip.part < last:
                    written += len(strips.clip(trip.rows.high - most, trip.rows.high - least))
        return read, written

    def seams(self, depth: int, strips: Strips) -> dict[tuple[str, int], tuple[int, int]]:
        """For each ring of an evolving field, (most, least) rows of its seam below a border."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for field in self.problem.stencil.evolving:
            rings = ring_count(field, self.problem.stencil)
            leads = {a.level: a.row_lead for a in self.arrivals if a.field == field.name}
            for index in range(rings):
                found[field.name, index] = strips.seam(depth, leads, rings, index)
        return found

    def disk_bytes(self, depths: tuple[int, ...], strips: Strips) -> int:
        """Bytes reserved in scratch: two files for each evolving level, one for a coefficient, and
        one for the seams of each ring where planes are cut into strips."""
        constants = sum(1 for arrival in self.arrivals if arrival.constant)
        fields = (2 * len(self.departures) + constants) * self.level_bytes
        deepest = max(depths, default=0)
        if strips.count(deepest) == 1:
            return fields
        rows = sum(
            max(seam[0] - seam[1] for seam in seams)
            for seams in zip(
                *(self.seams(depth, strips).values() for depth in set(depths)), strict=True
            )
        )
        return fields + rows * (self.level_bytes // strips.rows)

    @cached_property
    def face(self) -> int:
        """Planes by which the first updated plane rises per step where a sweep begins inside the
        grid: what a step reads towards lower planes is there, and nothing below is."""
        return max(0, *(-read.low for read in self.found.readings))

    def pitch_planes(
        self,
        depth: int,
        slab: int,
        resident: bool,
        seams: bool = False,
        depths: tuple[int, ...] = (),
    ) -> int:
        """Planes of the stream from one trip to the next, a multiple of the slab.

        Levels leave one after the other. A sweep begins so late that none of its levels leaves
        before the last one of the sweep before: that write would wait for a commit that waits for
        writes queued behind it. With ``seams`` a trip reads what the one before it leaves when it
        reads a plane for the last time. Only sweeps of unequal ``depths`` overtake one another.
        """
        reach = self.skew.per_step * depth + max(self.skew.shifts)
        reach += self.problem.stencil.radius[0] if seams else 0
        planes = self.problem.shape[0]
        lags = [departure.lag(depth, self.skew.per_step) for departure in self.departures]
        ahead = [0, max(lags) - min(lags) - 1]
        for last, first in pairwise(depths):
            late = max(departure.lag(last, self.skew.per_step) for departure in self.departures)
            early = min(departure.lag(first, self.skew.per_step) for departure in self.departures)
            ahead.append(late - early - 1)
        apart = planes + max(ahead)
        least = planes + reach if resident else max(apart, reach + TURNAROUND_SLABS * slab)
        return -(-least // slab) * slab

    def whole_planes(self, depth: int) -> int:
        """A slab in which a whole sweep of ``depth`` steps begins and ends."""
        return self.problem.shape[0] + self.skew.per_step * depth + max(self.skew.shifts)

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
            return self.problem.shape[0]
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
    if steps == 0:
        return ()
    sweeps = -(-steps // depth)
    each = -(-steps // sweeps)
    if each % 2 and each < depth:
        each += 1
    rest = steps - (sweeps - 1) * each
    while rest <= 0:  # an even depth may need one sweep less
        sweeps -= 1
        rest = steps - (sweeps - 1) * each
    return (rest, *([each] * (sweeps - 1)))


def given_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep where the depth was asked for: first what is over, then that depth."""
    full, rest = divmod(steps, depth)
    return (*((rest,) if rest else ()), *([depth] * full))
