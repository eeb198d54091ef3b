"""Space blocks of the scheme ``overlapped``, and the sizes that its inventors chose.

A block is read with a halo of ``reach*depth`` cells on each side on which the grid goes on. Its
steps shrink towards its core, the part that is written: cells of the halo are computed by every
block that reads them. Blocks are as long as the grid in x, so that rows are contiguous, and need
not be cubes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from outgrid.plan.trip import Span, Trip


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the ``planes`` x ``rows`` of a grid are cut into blocks of ``core`` (planes, rows).

    ``reach`` (planes, rows) is what one step reads around a cell, ``layer`` the width of the fixed
    cells around the interior. Extents of blocks count interior cells; blocks at the border of the
    grid have its layer as well.
    """

    planes: int
    rows: int
    core: tuple[int, int]
    reach: tuple[int, int]
    layer: tuple[int, int]

    def trips(self, depths: tuple[int, ...]) -> tuple[Trip, ...]:
        """All trips of a run, in order: one per block and sweep."""
        found: list[Trip] = []
        for sweep, depth in enumerate(depths):
            blocks = product(self._spans(0, depth), self._spans(1, depth))
            for part, (planes, rows) in enumerate(blocks):
                found.append(Trip(len(found), sweep, part, depth, planes, rows))
        return tuple(found)

    def _spans(self, axis: int, depth: int) -> list[Span]:
        """What the blocks along an axis cover, step by step."""
        cores = _cut(self._extent(axis), self.core[axis], self.layer[axis])
        return [_shrinking(core, self.reach[axis], depth) for core in cores]

    def _extent(self, axis: int) -> int:
        return self.rows if axis else self.planes

    def _cells(self, axis: int, depth: int, step: int) -> list[int]:
        """Planes or rows of each block along an axis at ``step``."""
        extent = self._extent(axis)
        return [len(span.at(step, extent)) for span in self._spans(axis, depth)]

    def count(self) -> int:
        """Blocks of a sweep."""
        return len(self._spans(0, 0)) * len(self._spans(1, 0))

    def held(self, depth: int) -> tuple[int, int]:
        """(planes, rows) of the largest block with its halo, for sweeps of ``depth`` steps."""
        return max(self._cells(0, depth, 0)), max(self._cells(1, depth, 0))

    def moved_rows(self, depth: int, first: int | None = None) -> tuple[int, int]:
        """Rows of one level that a sweep, or its ``first`` blocks alone, (read, write)."""
        if first is None:
            return self._rows(depth, 0), self._rows(depth, depth)
        trips = self.trips((depth,))[:first]
        read, written = (
            sum(
                len(t.planes.at(step, self.planes)) * len(t.rows.at(step, self.rows)) for t in trips
            )
            for step in (0, depth)
        )
        return read, written

    def updated_rows(self, depth: int) -> int:
        """Rows that all steps of a sweep update, those of halos included."""
        return sum(self._rows(depth, step) for step in range(1, depth + 1))

    def _rows(self, depth: int, step: int) -> int:
        return sum(self._cells(0, depth, step)) * sum(self._cells(1, depth, step))


def _shrinking(core: range, reach: int, depth: int) -> Span:
    return Span(core.start - reach * depth, core.stop + reach * depth, reach, -reach)


def _cut(extent: int, edge: int, layer: int) -> Iterator[range]:
    """Parts of ``edge`` interior cells; the first and the last have the layer outside as well."""
    first, end = layer, extent - layer
    if first >= end:
        yield range(extent)
        return
    for low in range(first, end, edge):
        high = min(low + edge, end)
        yield range(0 if low == first else low, extent if high == end else high)


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
    """Block (z, y, x) and depth by their rule, None where not even an edge of 2 ``fits``.

    The block's edge is the largest power of two, below the grid's extents, that fits with the least
    halo; then the depth is the largest power of two that still fits, is at most half an edge and
    leaves at least two sweeps.
    """
    z, y, x = interior
    edge = 1
    while 2 * edge < min(z, y) and fits((2 * edge, 2 * edge, x), 1):
        edge *= 2
    if edge < 2:
        return None
    block, depth = (edge, edge, x), 1
    while 2 * depth <= min(steps // 2, edge // 2) and fits(block, 2 * depth):
        depth *= 2
    return block, depth
