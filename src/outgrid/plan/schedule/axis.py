"""What follows of steps along one axis alone: how they trail, lean and reach.

Planes and rows are alike here: a schedule has one of these for each of them.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.lifetime import Dependences, needed_from
from outgrid.plan.schedule.skew import Halo, Skew


class Axis(msgspec.Struct, frozen=True, dict=True):
    """An axis of ``extent`` cells, and what steps read and write along it.

    ``periodic``: its first cell is the neighbour of its last one. Remembers what it derived.
    """

    extent: int
    dependences: Dependences
    periodic: bool

    @cached_property
    def skew(self) -> Skew:
        """Cells by which a step trails the one before it."""
        return self.dependences.skew()

    @cached_property
    def face(self) -> Skew:
        """How the first updated cell rises, step by step, where a sweep begins inside the grid."""
        return self.dependences.face()

    @cached_property
    def halo(self) -> Halo:
        """What a part of the grid needs beyond the cells that it makes."""
        return self.dependences.halo()

    @property
    def still(self) -> Axis:
        """The same if nothing were read beside a cell: then nothing leans."""
        readings = tuple(replace(read, low=0, high=0) for read in self.dependences.readings)
        return replace(self, dependences=replace(self.dependences, readings=readings))

    def lead(self, field: str, level: int) -> int:
        """Cells by which the first step that reads ``level`` (0 or -1) trails what it needs."""
        return needed_from(field, level, self.dependences, self.skew)

    def reach(self, *, both_ways: bool) -> int:
        """Cells that steps reach beyond an end that falls and its skew, or also one that rises."""
        ends = [(self.dependences, self.skew)]
        if both_ways:
            ends.append((self.dependences.mirrored(), self.face))
        return max(
            skew.shifts[read.reader] - read.low
            for dependences, skew in ends
            for read in dependences.readings
        )
