"""Space blocks of the scheme ``overlapped``, and the sizes that its inventors chose.

A block is read with the halo of its sweep on each side on which the grid goes on. Its
steps shrink towards its core, the part that is written: cells of the halo are computed by every
block that reads them. Blocks are as long as the grid in x, so that rows are contiguous, and need
not be cubes. Along an axis that closes the grid goes on everywhere: cells before the first one are
the last ones again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter, methodcaller

import msgspec

from outgrid.plan.schedule.interval import ACROSS, AXES, STREAMED, Interval, shrinking
from outgrid.plan.schedule.skew import Halo
from outgrid.plan.schedule.subgrid import common

LEAST_EDGE = 2
"""Interior cells of the smallest block that is chosen, along each axis that is cut."""


class Blocks(msgspec.Struct, frozen=True):
    """How the ``planes`` x ``rows`` of a grid are cut into blocks of ``core`` (planes, rows).

    ``halos`` of planes and rows are what steps need around a part of the grid, ``layers`` the fixed
    cells below and above the interior. Extents of blocks count interior cells; blocks at the border
    of the grid have its layer as well. Of one rank of several they make up what it has ``owned``,
    [low, high) of both axes. ``closes`` says of both axes whether the first cells come again.
    """

    planes: int
    rows: int
    core: tuple[int, int]
    halos: tuple[Halo, Halo]
    layers: tuple[tuple[int, int], tuple[int, int]]
    owned: tuple[tuple[int, int], tuple[int, int]] | None = None
    closes: tuple[bool, bool] = (False, False)

    def interval(self, axis: int, depth: int, part: int) -> Interval:
        """What block ``part`` of a sweep covers of an axis."""
        return self._interval(axis, depth, divmod(part, self._count(ACROSS))[axis])

    def _interval(self, axis: int, depth: int, index: int) -> Interval:
        """What a block along an axis covers."""
        core, extent, ring = self._core(axis, index), self._extent(axis), self.closes[axis]
        return shrinking(core, extent, depth, self.halos[axis], ring=ring)

    def _core(self, axis: int, index: int) -> range:
        """A block of interior cells; the first and the last have the layer outside as well."""
        owned, edge, first = self._owned(axis), self.core[axis], self._inside(axis).start
        low, high = first + index * edge, first + (index + 1) * edge
        last = index + 1 == self._count(axis)
        return range(low if index else owned.start, owned.stop if last else high)

    def _count(self, axis: int) -> int:
        """Blocks along an axis; one where it has no interior."""
        return max(1, -(-len(self._inside(axis)) // self.core[axis]))

    def _owned(self, axis: int) -> range:
        """The cells of an axis that are cut into blocks."""
        if self.owned is None:
            return range(self._extent(axis))
        return range(*self.owned[axis])

    def _inside(self, axis: int) -> range:
        """Those of the interior."""
        low, high = self.layers[axis]
        return common(self._owned(axis), range(low, self._extent(axis) - high))

    def _extent(self, axis: int) -> int:
        return self.rows if axis else self.planes

    def _alike(self, axis: int, depth: int) -> list[tuple[Interval, int]]:
        """What blocks along an axis cover, each with the number of those that cover as much.

        So do all whose halos end within the grid, and the grid may have very many.
        """
        count = self._count(axis)
        near = 1 + -(-self.halos[axis].cells(depth) // self.core[axis])
        middle = max(0, count - 2 * near)
        ends = range(count) if middle == 0 else (*range(near), *range(count - near, count))
        found = [(self._interval(axis, depth, index), 1) for index in ends]
        return [*found, (self._interval(axis, depth, near), middle)] if middle else found

    def count(self) -> int:
        """Blocks of a sweep."""
        return self._count(STREAMED) * self._count(ACROSS)

    def held(self, depth: int) -> tuple[int, int]:
        """(planes, rows) of the largest block with its halo, for sweeps of ``depth`` steps."""
        planes, rows = (
            max(len(part.read) for part, _ in self._alike(axis, depth)) for axis in AXES
        )
        return planes, rows

    def moved_rows(self, depth: int, first: int | None = None) -> tuple[int, int]:
        """Rows of one level that a sweep, or its ``first`` blocks alone, (read, write)."""
        if first is None:
            every = [self._alike(axis, depth) for axis in AXES]
            return _rows(every, attrgetter("read")), _rows(every, attrgetter("cells"))
        read = written = 0
        for part in range(first):
            planes, rows = (self.interval(axis, depth, part) for axis in AXES)
            read += len(planes.read) * len(rows.read)
            written += len(planes.cells) * len(rows.cells)
        return read, written

    def updated_rows(self, depth: int) -> int:
        """Rows that all steps of a sweep update, those of halos included."""
        every = [self._alike(axis, depth) for axis in AXES]
        return sum(_rows(every, methodcaller("covered", step)) for step in range(1, depth + 1))


def _rows(every: list[list[tuple[Interval, int]]], cells: Callable[[Interval], range]) -> int:
    """The rows in all blocks, of which each axis has so many of some cells."""
    return math.prod(sum(count * len(cells(part)) for part, count in parts) for parts in every)


def paper_block_bytes(block: tuple[int, int, int], depth: int, item_bytes: int) -> int:
    """Bytes of one block buffer of Midorikawa and Tan, for ``block`` interior cells (z, y, x).

    A radius of one; a halo on all sides, in x too although x is not cut, and the fixed layer in x.
    """
    z, y, x = block
    return (z + 2 * depth) * (y + 2 * depth) * (x + 2 + 2 * depth) * item_bytes


def paper_block(
    interior: tuple[int, int, int],
    steps: int,
    fits: Callable[[tuple[int, int, int], int], bool],
) -> tuple[tuple[int, int, int], int] | None:
    """Block (z, y, x) and depth by their rule, None where not even the least edge ``fits``.

    The block's edge is the largest power of two, below the grid's extents, that fits with the least
    halo; then the depth is the largest power of two that still fits, is at most half an edge and
    leaves at least two sweeps.
    """
    z, y, x = interior
    edge = 1
    while 2 * edge < min(z, y) and fits((2 * edge, 2 * edge, x), 1):
        edge *= 2
    if edge < LEAST_EDGE:
        return None
    block, depth = (edge, edge, x), 1
    while 2 * depth <= min(steps // 2, edge // 2) and fits(block, 2 * depth):
        depth *= 2
    return block, depth
