"""The domain: the grid, what of it one rank owns, and the way in which planes are streamed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from outgrid.plan.schedule.interval import STREAMED, Interval
from outgrid.plan.schedule.subgrid import Box, Subgrid
from outgrid.plan.schedule.trip import mirrored, pieces


class Domain(msgspec.Struct, frozen=True, dict=True):
    """A grid of a ``shape``, and the ``subgrid`` of it that a rank owns: the only one owns it all.

    Planes and rows keep their numbers in the whole grid. Round a ring of ranks planes below the
    first have numbers below 0, and those above the last go on counting. A ``downward`` stream comes
    to the last plane first and counts planes from there.
    """

    shape: tuple[int, ...]
    subgrid: Subgrid

    @classmethod
    def of(cls, shape: tuple[int, ...], subgrid: Subgrid | None) -> Domain:
        """That of one rank of several, or of the whole grid."""
        return cls(shape, subgrid or Subgrid.whole(shape))

    @property
    def planes(self) -> int:
        """Planes of the grid: the extent of axis 0."""
        return self.shape[0]

    @property
    def rows(self) -> int:
        """Rows of a plane of the grid; 1 in 2-D."""
        return self.shape[1] if len(self.shape) == 3 else 1

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Planes and rows of the grid."""
        return self.planes, self.rows

    @property
    def downward(self) -> bool:
        """Whether the stream begins with the last plane of the grid."""
        return self.subgrid.downward

    def pieces(self, planes: range) -> Iterator[range]:
        """Planes cut where files hold them apart: round a ring they hold what comes again."""
        if not self.subgrid.ring:
            yield from pieces(planes, self.planes)
        elif planes:
            yield planes

    def filed(self, planes: range, rows: range) -> Box:
        """Where planes and rows of the stream, each in one piece, lie in files.

        In the same order: planes fall where the stream goes downwards.
        """
        row = rows.start - rows.start % self.rows
        if self.downward:
            return Box(self.streamed(planes)[::-1], rows).counted_from(0, row)
        plane = 0 if self.subgrid.ring else planes.start - planes.start % self.planes
        return Box(planes, rows).counted_from(plane, row)

    def streamed(self, planes: range) -> range:
        """Planes of the grid as the stream counts them; or the other way round."""
        return mirrored(planes, self.planes) if self.downward else planes

    @cached_property
    def owned(self) -> Box:
        """The planes, and their rows, that are carried from state to state."""
        return self.subgrid.owned

    @property
    def carried(self) -> tuple[range, ...]:
        """The same by axis: planes, and in three dimensions rows."""
        return (self.owned.planes, self.owned.rows)[: len(self.shape) - 1]

    def interval(self, axis: int, depth: int) -> Interval:
        """What sweeps of ``depth`` steps are about along an axis, as the stream counts it.

        Seams are not looked at.
        """
        interval = self.subgrid.interval(axis, depth)
        return interval.mirrored() if self.downward and axis == STREAMED else interval
