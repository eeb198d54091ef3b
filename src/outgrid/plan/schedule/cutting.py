"""Cutting: how sweeps are cut into trips, what each covers, and the seams that lie at the cuts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.blocks import Blocks
from outgrid.plan.schedule.domain import Domain
from outgrid.plan.schedule.interval import ACROSS, STREAMED, Interval, Lean
from outgrid.plan.schedule.seam import Cut, Seam
from outgrid.plan.schedule.strips import Strips


class Cutting(msgspec.Struct, frozen=True, dict=True):
    """A ``domain`` cut into ``strips`` or into ``blocks``; remembers what it derived.

    ``every`` seam of each depth that sweeps have: at cuts between strips and between ranks, and
    where the first cells of an axis come round again at its end.
    """

    domain: Domain
    strips: Strips
    blocks: Blocks | None
    every: tuple[Seam, ...]

    def trips(self, depth: int) -> int:
        """Trips of a sweep of ``depth`` steps."""
        return self.strips.count(depth) if self.blocks is None else self.blocks.count()

    def sizes(self, depth: int) -> tuple[int, ...]:
        """(), the height of the strips of a sweep, or (planes, rows) of its blocks."""
        if self.blocks is not None:
            return self.blocks.core
        return (self.strips.height,) if self.strips.count(depth) > 1 else ()

    def seams(self, depth: int, axis: int) -> tuple[Seam, ...]:
        """The seams at cuts across an axis, of sweeps of ``depth`` steps."""
        return self._seams.get((depth, axis), ())

    def closing(self, depth: int, axis: int) -> Seam | None:
        """The seam through which the first cells of an axis come round again."""
        return self._closing.get((depth, axis))

    def between_ranks(self, depth: int) -> Iterator[tuple[Seam, Cut]]:
        """The seams of cuts between ranks."""
        for seam in self.seams(depth, STREAMED):
            if seam.cut is not None:
                yield seam, seam.cut

    @cached_property
    def closes(self) -> bool:
        """Whether the first planes come round again."""
        return any(axis == STREAMED for _, axis in self._closing)

    @cached_property
    def _seams(self) -> dict[tuple[int, int], tuple[Seam, ...]]:
        seams: dict[tuple[int, int], tuple[Seam, ...]] = {}
        for seam in self.every:
            seams[seam.depth, seam.axis] = (*seams.get((seam.depth, seam.axis), ()), seam)
        return seams

    @cached_property
    def _closing(self) -> dict[tuple[int, int], Seam]:
        return {(seam.depth, seam.axis): seam for seam in self.every if seam.closes}

    def covered(self, axis: int, depth: int, part: int) -> Interval:
        """What one trip of a sweep covers of an axis."""
        if self.blocks is not None:
            return self.blocks.interval(axis, depth, part)
        return self.interval(axis, depth, part)

    def interval(self, axis: int, depth: int, part: int = 0) -> Interval:
        """What whole planes, or a strip of them, cover of an axis: with the seams at its ends."""
        count = self.strips.count(depth) if axis == ACROSS else 1
        key = axis, depth, part if count > 1 else 0
        if key not in self._intervals:
            self._intervals[key] = self._between_seams(*key, count)
        return self._intervals[key]

    @cached_property
    def _intervals(self) -> dict[tuple[int, int, int], Interval]:
        return {}

    def _between_seams(self, axis: int, depth: int, strip: int, count: int) -> Interval:
        interval = self.domain.interval(axis, depth)
        if count > 1:
            interval = replace(interval, cells=self.strips.cells(depth, strip))
        below, above, extent = interval.below, interval.above, interval.extent
        for seam in self.seams(depth, axis):
            # Beside strips lie all rows that steps reach; planes that come round are there again.
            beside = self.strips.beside(depth) if axis == ACROSS else 0
            if seam.cut is not None:
                end = Lean(seam, not seam.cut.given, 0 if seam.cut.given else seam.reach)
                below, above = (below, end) if seam.cut.above else (end, above)
            elif seam.closes:
                extent += beside if axis == ACROSS else seam.reach
                below = Lean(seam, False, 0) if strip == 0 else below
                above = Lean(seam, True, beside) if strip + 1 == count else above
            else:
                below = Lean(seam, True, beside) if strip > 0 else below
                above = Lean(seam, False, 0) if strip + 1 < count else above
        return Interval(interval.cells, extent, below, above, interval.first)
