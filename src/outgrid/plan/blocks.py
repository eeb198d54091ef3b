"""Space blocks of the scheme ``overlapped``, and the sizes that its inventors chose.

A block is read with a halo of ``reach*depth`` cells on each side on which the grid goes on. Its
steps shrink towards its core, the part that is written: cells of the halo are computed by every
block that reads them. Blocks are as long as the grid in x, so that rows are contiguous, and need
not be cubes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
            for part, (planes, rows) in enumerate(self._cores()):
                found.append(
                    Trip(
                        len(found),
                        sweep,
                        part,
                        depth,
                        _shrinking(planes, self.reach[0], depth),
                        _shrinking(rows, self.reach[1], depth),
                    )
                )
        return tuple(found)

    def _cores(self) -> Iterator[tuple[range, range]]:
        for planes in _cut(self.planes, self.core[0], self.layer[0]):
            for rows in _cut(self.rows, self.core[1], self.layer[1]):
                yield planes, rows

    def count(self) -> int:
        """Blocks of a sweep."""
        return sum(1 for _ in self._cores())

    def held(self, depth: int) -> tuple[int, int]:
        """(planes, rows) of the largest block with its halo, for sweeps of ``depth`` steps."""
        trips = self.trips((depth,))
        return (
            max(len(trip.planes.at(0, self.planes)) for trip in trips),
            max(len(trip.rows.at(0, self.rows)) for trip in trips),
        )

    def moved_rows(self, depth: int) -> tuple[int, int]:
        """Rows of one level that a sweep (reads, writes)."""
        read = written = 0
        for trip in self.trips((depth,)):
            read += self._rows(trip, 0)
            written += self._rows(trip, depth)
        return read, written

    def updated_rows(self, depth: int) -> int:
        """Rows that all steps of a sweep update, those of halos included."""
        return sum(
            self._rows(trip, step) for trip in self.trips((depth,)) for step in range(1, depth + 1)
        )

    def _rows(self, trip: Trip, step: int) -> int:
        return len(trip.planes.at(step, self.planes)) * len(trip.rows.at(step, self.rows))


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
    interior: tuple[int, int, int], steps: int, item_bytes: int, room_bytes: int
) -> tuple[tuple[int, int, int], int] | None:
    """Block (z, y, x) and depth by their rule, None where not even an edge of 2 fits.

    The block's edge is the largest power of two, below the grid's extents, that fits twice with
    the least halo; then the depth is the largest power of two that still fits, is at most half an
    edge and leaves at least two sweeps.
    """
    z, y, x = interior
    edge = 1
    while 2 * edge < min(z, y) and _fits((2 * edge, 2 * edge, x), 1, item_bytes, room_bytes):
        edge *= 2
    if edge < 2:
        return None
    block, depth = (edge, edge, x), 1
    while 2 * depth <= min(steps // 2, edge // 2) and _fits(
        block, 2 * depth, item_bytes, room_bytes
    ):
        depth *= 2
    return block, depth


def _fits(block: tuple[int, int, int], depth: int, item_bytes: int, room_bytes: int) -> bool:
    return 2 * paper_block_bytes(block, depth, item_bytes) <= room_bytes
