"""Several levels in one launch: the tile that a block of threads keeps on the chip of a device.

A block has a tile of columns and rows and walks along the planes. A level is read from the device's
memory, and another comes there some levels later: those between stay in registers and in the memory
that a block shares. At the edges of a tile they are made by two blocks or more. The method is that
of AN5D (Matsumura et al., CGO 2020) and EBISU (Zhang et al., ICS 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import prod

import msgspec
from msgspec.structs import replace

from outgrid.machine import SHARED_BYTES
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.schedule.lifetime import ring_count
from outgrid.stencil.boundary import STORED, Edges
from outgrid.stencil.expression import STEP, Access, Operation, Parameter, nodes
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

__all__ = ["ChipTile", "chip_tile", "tile_of"]

LEVELS = 3
"""Of one launch. Results go to another ring than that which all blocks read, of two: the number is
odd. With 5 levels a block makes more cells at the edges of its tile than it saves."""
ROWS = 4  # of a thread
WARP = 32
ACROSS = 64  # columns of a tile
THREADS = (1024, 512)  # of a block: the first that have registers enough
REGISTERS = 1 << 16  # of 4 bytes, for all threads of a block
KEPT_SHARE = 0.6  # of the registers of a thread for the levels between; the rest is to compute with
LEAST_STORED = 0.5  # of the cells of a tile that is made smaller: the others are made for its edges
MOST_READS = 40  # of a cell: with more the registers do not suffice
MOST_REACH = 2


class Reached(msgspec.Struct, frozen=True):
    """A field that is updated, and the planes ``above`` and ``below`` in which it is read."""

    name: str
    above: int
    below: int


class ChipTile(msgspec.Struct, frozen=True):
    """The tile of a block: ``across`` columns, and ``down`` threads of ``rows`` rows each.

    ``fields`` are updated, of ``item_bytes``. Updates read ``reach`` cells far in a plane, and
    beside the own column in planes from ``first`` to ``last``, counted from the one updated.
    """

    reach: int
    first: int
    last: int
    fields: tuple[Reached, ...]
    item_bytes: int
    across: int
    down: int
    rows: int = ROWS
    levels: int = LEVELS

    @property
    def of_a_warp(self) -> bool:
        """Whether a row is that of one warp, whose threads give each other their values."""
        return self.across == WARP

    @property
    def above(self) -> int:
        """Planes that are read above the one that is updated."""
        return max(field.above for field in self.fields)

    @property
    def below(self) -> int:
        """Planes that are read below the one that is updated."""
        return max(field.below for field in self.fields)

    @property
    def lag(self) -> int:
        """Planes that a level is behind the one before.

        Another plane where the last that is read has to be there for all threads of the block.
        """
        return self.above + (self.last == self.above)

    @property
    def slots(self) -> int:
        """Planes of each level that a block shares: those that are read, and one that comes."""
        return 1 << (self.last - self.first + 1).bit_length()

    @property
    def halo(self) -> int:
        """Cells at each edge of a tile whose last level is made by another block."""
        return self.levels * self.reach

    @property
    def between(self) -> int:
        """Planes of a level that the next slab reads: those that it has not made."""
        return self.above + self.below

    @property
    def stored(self) -> tuple[int, int]:
        """Columns and rows of a tile whose last level is stored."""
        return self.across - 2 * self.halo, self.down * self.rows - 2 * self.halo

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block."""
        return self.across, self.down, 1

    def parts(self, planes: int, tiles: int, processors: int) -> int:
        """Parts of the planes that blocks make at once, of so many tiles side by side.

        A processor of the device has one block at a time, and the last ones leave some without any.
        Each part makes some planes at its ends again, and waits until its first levels are there.
        """
        more = self.levels * (self.lag + 2 * max(self.above, self.below))

        def seconds(parts: int) -> float:
            turns = -(-tiles * parts // processors)
            return turns * (-(-planes // parts) + (more if parts > 1 else self.levels * self.lag))

        most = max(1, planes // (2 * more))
        return min(range(1, most + 1), key=seconds)

    @property
    def between_planes(self) -> int:
        """Planes that lie between two slabs: of each level but the last what the next one reads."""
        return self.between * (self.levels - 1) * len(self.fields)

    @property
    def kept_share(self) -> float:
        """How much of the registers of a thread the levels between take."""
        cells = self.levels * len(self.fields) * (self.below + self.lag) * self.rows
        return cells * self.item_bytes / 4 * self.across * self.down / REGISTERS

    @property
    def shared_bytes(self) -> int:
        """Memory that a block shares, with what lies around its planes."""
        planes = self.levels * len(self.fields) * self.slots
        guard = 2 * self.reach * (self.across + 1)
        return (planes * self.across * self.down * self.rows + guard) * self.item_bytes

    def chain(self, ranges: Sequence[range], planes: int) -> bool:
        """Whether levels of these ranges can be made in one launch, of a grid of ``planes``.

        From level to level both ends move down by what is read above, or less where the grid ends.
        """
        for one, next_ in pairwise(ranges):
            down, up = one.start - next_.start, one.stop - next_.stop
            if down != self.above and not (next_.start == 0 <= down < self.above):
                return False
            if up != self.above and not (one.stop == planes and 0 <= up < self.above):
                return False
        return True


def tile_of(problem: Problem, shared_bytes: int = SHARED_BYTES) -> ChipTile | None:
    """The `chip_tile` of the stencil of a problem."""
    return chip_tile(problem.stencil, problem.dtype, problem.edges, problem.dtypes, shared_bytes)


def chip_tile(
    stencil: Stencil,
    dtype: str,
    edges: Edges,
    apart: Mapping[str, str],
    shared_bytes: int = SHARED_BYTES,
) -> ChipTile | None:
    """The tile by which several levels of a stencil are made on the chip; None where they are not.

    They are of stencils in three dimensions with one stage, whose fields keep two levels and are
    stored as they are computed, whose faces are stored, and which do the same in every step.
    The tile has fewer rows where the ``shared_bytes`` of a block do not suffice for all of them.
    """
    evolving = {field.name for field in stencil.evolving}
    if stencil.ndim != 3 or len(stencil.stages) != 1 or apart:
        return None
    if any(field.temporary or ring_count(field, stencil) != 2 for field in stencil.evolving):
        return None
    if any(
        edges.rule(field.name, axis) != (STORED, STORED)
        for field in stencil.fields
        for axis in range(3)
    ):
        return None
    assignments = stencil.stages[0].assignments
    found = nodes(*(each.expression for each in assignments))
    read = [node for node in found if isinstance(node, Access)]
    changing = any(
        (isinstance(node, Parameter) and node.name == STEP.name)
        or (isinstance(node, Operation) and node.name == "random")
        for node in found
    )
    if changing or {each.field for each in assignments} != evolving:
        return None
    if any(stencil.version(0, access) != -1 for access in read if access.field in evolving):
        return None
    offsets = {
        each.field: [one.offset for one in read if one.field == each.field] for each in assignments
    }
    fields = tuple(
        Reached(
            name,
            max((plane for plane, *_ in those), default=0),
            max((-plane for plane, *_ in those), default=0),
        )
        for name, those in offsets.items()
    )
    every = [offset for those in offsets.values() for offset in those]
    reach = max((abs(one) for _, *others in every for one in others), default=0)
    beside = [plane for plane, *others in every if any(others)] or [0]
    # Columns of several planes: what a column adds to others is computed by its own thread.
    flat = not any(beside)
    if not flat:
        beside = [plane for plane, row, _ in every if row] or [0]
    across = ACROSS if flat else WARP
    made = partial(ChipTile, reach, min(beside), max(beside), fields, ITEM_BYTES[dtype], across)
    tiles = [made(threads // across) for threads in THREADS if flat or threads == THREADS[-1]]
    near = 0 < tiles[0].above <= MOST_REACH and tiles[0].below <= MOST_REACH >= reach
    if not near or len(read) > MOST_READS:
        return None
    fit = (tile for tile in tiles if tile.shared_bytes <= SHARED_BYTES)
    chosen = next((tile for tile in fit if tile.kept_share <= KEPT_SHARE), None)
    return None if chosen is None else _smaller(chosen, shared_bytes)


def _smaller(tile: ChipTile, shared_bytes: int) -> ChipTile | None:
    """The tile with as many rows as a block can share; None where too few of them are stored."""
    while tile.shared_bytes > shared_bytes:
        tile = replace(tile, down=tile.down // 2)
        columns, rows = tile.stored
        if rows <= 0 or columns * rows < LEAST_STORED * prod(tile.block) * tile.rows:
            return None
    return tile
