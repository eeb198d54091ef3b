"""Stored: the planes and rows of a level that lie in files."""

from __future__ import annotations

from functools import cached_property

import msgspec

from outgrid.plan.schedule.cutting import Cutting
from outgrid.plan.schedule.interval import ACROSS, AXES, STREAMED
from outgrid.plan.schedule.subgrid import Box


class Stored(msgspec.Struct, frozen=True, dict=True):
    """What files hold for sweeps of up to ``deepest`` steps, with ``coefficients`` or without."""

    cutting: Cutting
    deepest: int
    coefficients: bool

    def held(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps begins with."""
        domain = self.cutting.domain
        planes, rows = self.cutting.interval(STREAMED, depth), domain.interval(ACROSS, depth)
        return Box(
            domain.streamed(planes.read if self.coefficients else planes.stored), rows.stored
        )

    def evolving(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps reads of the levels that evolve."""
        domain = self.cutting.domain
        planes, rows = (domain.interval(axis, depth) for axis in AXES)
        return Box(domain.streamed(planes.stored), rows.stored)

    @cached_property
    def box(self) -> Box:
        """The planes, and their rows, that the files of a level hold."""
        return self.held(self.deepest)

    @property
    def planes(self) -> range:
        """The planes that they hold."""
        return self.box.planes

    @property
    def rows(self) -> range:
        """The rows of each of these planes."""
        return self.box.rows

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return self.box.count

    @property
    def apart(self) -> dict[str, range]:
        """The rows that lie in files of their own: what is owned, and halos on both sides of it.

        By what is added to the name of the file; "" are those that are owned.
        """
        held, owned = self.rows, self.cutting.domain.owned.rows
        halos = range(held.start, owned.start), range(owned.stop, held.stop)
        every = {"below": halos[0], "": owned, "above": halos[1]}
        return {name: rows for name, rows in every.items() if rows}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the files of a level."""
        grid = self.cutting.domain.shape
        return (*(len(self.planes), len(self.rows))[: len(grid) - 1], grid[-1])
