"""From a depth and a slab to rings and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
        return dependences(self.problem.stencil)

    @cached_property
    def skew(self) -> Skew:
        """Planes by which a step trails the one before it."""
        return self.found.skew()

    @cached_property
    def layout(self) -> Layout:
        """Planes and rows in the window."""
        return layout(self.problem.shape, self.problem.dtype)

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

    @property
    def level_bytes(self) -> int:
        """Bytes of one time level of one field on disk."""
        return self.problem.field_bytes

    def read_bytes(self, sweeps: int) -> int:
        """Bytes that ``sweeps`` trips read."""
        return sweeps * len(self.arrivals) * self.level_bytes

    def written_bytes(self, sweeps: int) -> int:
        """Bytes that ``sweeps`` trips write."""
        return sweeps * len(self.departures) * self.level_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes reserved in scratch: two files for each evolving level, one for a coefficient."""
        constants = sum(1 for arrival in self.arrivals if arrival.constant)
        return (2 * len(self.departures) + constants) * self.level_bytes

    def pitch_planes(self, depth: int, slab: int, resident: bool) -> int:
        """Planes of the stream from one sweep to the next, a multiple of the slab.

        Levels leave one after the other. A sweep begins so late that none of its levels leaves
        before the last one of the sweep before: that write would wait for a commit that waits for
        writes queued behind it.
        """
        reach = self.skew.per_step * depth + max(self.skew.shifts)
        planes = self.problem.shape[0]
        lags = [departure.lag(depth, self.skew.per_step) for departure in self.departures]
        apart = planes + max(0, max(lags) - min(lags) - 1)
        least = planes + reach if resident else max(apart, reach + TURNAROUND_SLABS * slab)
        return -(-least // slab) * slab

    def rings(self, depths: tuple[int, ...], slab: int, resident: bool) -> tuple[Ring, ...]:
        """All rings of the window, just large enough for full overlap of I/O and computation.

        None where there is no sweep.
        """
        if not depths:
            return ()
        sweeps = sweeps_by_base(depths, resident)
        return tuple(
            Ring(
                field.name,
                index,
                self._ring_planes(field.name, index, life, sweeps, slab, resident),
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
    ) -> int:
        if resident:
            return self.problem.shape[0]
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
