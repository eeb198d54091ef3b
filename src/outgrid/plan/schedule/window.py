"""What the window holds: the levels that come and go, and rings just large enough for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import msgspec

from outgrid.plan.schedule.axis import Axis
from outgrid.plan.schedule.lifetime import (
    Lifetime,
    field_is_constant,
    lifetime_of_step,
    lifetimes,
    ring_count,
    write_shift,
)
from outgrid.plan.schedule.rings import Arrival, Bands, Departure, Ring, most_together
from outgrid.stencil.model import Field, Stencil


class Window(msgspec.Struct, frozen=True, dict=True):
    """The window of a stencil whose planes pass along ``axis``; some fields are ``given``.

    Those that exist in some planes only have these ``bands``, and no planes beside them but where
    the whole grid is in the window. In whole planes, those that exist in some rows only have these
    ``row_bands``, and sweeps of at least ``shared_from`` steps read the next slab into the place of
    the last one, when that was written.
    """

    stencil: Stencil
    axis: Axis
    given: frozenset[str] = frozenset()
    bands: Mapping[str, Bands] = dataclasses.field(default_factory=dict[str, Bands])
    row_bands: Mapping[str, Bands] = dataclasses.field(default_factory=dict[str, Bands])
    column_bands: Mapping[str, Bands] = dataclasses.field(default_factory=dict[str, Bands])
    shared_from: int | None = None

    def arrivals(self, depth: int) -> tuple[Arrival, ...]:
        """Levels that enter the window in sweeps of up to ``depth`` steps."""
        return tuple(
            Arrival(
                field.name,
                level,
                self.axis.lead(field.name, level),
                not field.evolving,
                field.name in self.given,
            )
            for field in self.stencil.fields
            for level in (range(depth) if field.name in self.given else _moved(field))
        )

    @cached_property
    def _leads(self) -> dict[str, list[tuple[int, int]]]:
        """Of each field, the levels that arrive, and when."""
        leads: dict[str, list[tuple[int, int]]] = {}
        for arrival in self.arrivals(0):
            leads.setdefault(arrival.field, []).append((arrival.level, arrival.lead))
        return leads

    @cached_property
    def departures(self) -> tuple[Departure, ...]:
        """Levels that leave the window in every sweep."""
        dependences, skew = self.axis.dependences, self.axis.skew
        return tuple(
            Departure(
                field.name,
                level,
                write_shift(field.name, dependences, skew),
                self.axis.lead(field.name, 0),
            )
            for field in self.stencil.evolving
            for level in _moved(field)
        )

    def rings(
        self, depths: tuple[int, ...], slab: int, resident: bool, seams: bool = False
    ) -> tuple[Ring, ...]:
        """All rings of the window, just large enough for I/O to overlap with computation.

        With ``seams`` every ring of an evolving field has something to read and to write. None
        where there is no sweep. Of a field that is given anew in every step those of later steps
        come behind all others, step by step.
        """
        if not depths:
            return ()
        sweeps = sweeps_by_base(depths, resident)
        rings: list[Ring] = []
        for field in self.stencil.fields:
            bands = None if resident else self.bands.get(field.name)
            whole = resident or seams
            rows = None if whole else self.row_bands.get(field.name)
            columns = None if whole else self.column_bands.get(field.name)
            for index, life in enumerate(self._lives(field, sweeps)):
                planes = life.span + slab * self._slabs(field, index, sweeps, seams)
                if resident:
                    planes = self.axis.extent
                elif bands is not None:
                    planes = most_together(bands, self.axis.extent, planes)
                parts = bands, rows, columns
                rings.append(Ring(field.name, index, planes, life.low, life.high, *parts))
        later = [ring for ring in rings if ring.field in self.given and ring.index]
        first = (ring for ring in rings if ring not in later)
        return (*first, *sorted(later, key=lambda ring: ring.index))

    def _lives(self, field: Field, sweeps: frozenset[tuple[int, int]]) -> tuple[Lifetime, ...]:
        """Lifetimes that begin no later than arrival, which is timed for sweeps of any depth."""
        axis = self.axis
        if field.name in self.given:
            depth = max(depth for _, depth in sweeps)
            return tuple(
                lifetime_of_step(field.name, step, axis.dependences, axis.skew)
                for step in range(1, depth + 1)
            )
        rings = ring_count(field, self.stencil)
        lives = list(lifetimes(field.name, rings, axis.dependences, axis.skew, sweeps))
        for level, lead in self._leads.get(field.name, ()):
            life = lives[level % rings]
            lives[level % rings] = Lifetime(min(life.low, lead), life.high)
        return tuple(lives)

    def _slabs(
        self, field: Field, index: int, sweeps: frozenset[tuple[int, int]], seams: bool
    ) -> int:
        """Slabs of a ring beside what is alive: one under the front, one on its way each way.

        Where transfers have the time for it, these two are one: it is written, and read into.
        """
        constant = field_is_constant(field.name, self.axis.dependences)
        if seams and not constant:
            return 3
        if field.name in self.given:
            return 2
        rings = ring_count(field, self.stencil)
        read = any(level % rings == index for level in _moved(field))
        written = not constant and any(
            (base + depth + level) % rings == index
            for level in _moved(field)
            for base, depth in sweeps
        )
        deepest = max(depth for _, depth in sweeps)
        if self.shared_from is not None and deepest >= self.shared_from:
            return 1 + (read or written)
        return 1 + read + written


def _moved(field: Field) -> tuple[int, ...]:
    """The levels of a field that enter the window; of one that evolves they also leave it."""
    if field.temporary:
        return ()
    return (0, -1) if field.levels > 1 else (0,)


def sweeps_by_base(depths: tuple[int, ...], resident: bool) -> frozenset[tuple[int, int]]:
    """Distinct (base, depth) of the sweeps, bases modulo the numbers of rings in use (1, 2, 3)."""
    sweeps: set[tuple[int, int]] = set()
    base = 0
    for depth in depths:
        sweeps.add((base % 6 if resident else 0, depth))
        base += depth
    return frozenset(sweeps)
