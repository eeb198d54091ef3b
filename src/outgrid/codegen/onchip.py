"""The kernels that make several levels in one launch, on the chip of a device.

Each thread keeps the cells of its own column in registers; what it reads beside them is in memory
that its block shares. `outgrid.plan.onchip` has the tiles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from textwrap import indent

from outgrid.codegen.cell import statements
from outgrid.codegen.names import Names
from outgrid.plan.onchip import ChipTile
from outgrid.stencil.expression import (
    Access,
    Expression,
    Operation,
    Profile,
    nodes,
    shifted,
    substitute,
)

__all__ = ["ChipUpdate"]


class ChipUpdate:
    """The part of a kernel that makes a level of the cells of one thread."""

    def __init__(self, names: Names, tile: ChipTile) -> None:
        self.names, self.tile = names, tile
        self.evolving = [field.name for field in tile.fields]
        self.trees = [assignment.expression for assignment in names.stages[0]]
        self.beside: dict[Access, Expression] = {}
        if tile.of_a_warp:
            self.trees = [self._by_columns(tree) for tree in self.trees]

    def members(self) -> Iterator[str]:
        """What the header asks of a stencil."""
        tile = self.tile
        numbers = {
            "kLevels": tile.levels,
            "kUpdated": len(tile.fields),
            "kReach": tile.reach,
            "kAbove": tile.above,
            "kBelow": tile.below,
            "kBetween": tile.between,
            "kLag": tile.lag,
            "kFirst": tile.first,
            "kLast": tile.last,
            "kSlots": tile.slots,
            "kAcross": tile.across,
            "kDown": tile.down,
            "kRows": tile.rows,
        }
        listed = ", ".join(f"{name} = {number}" for name, number in numbers.items())
        yield f"static constexpr int {listed};"
        for name in ("above", "below"):
            reached = ", ".join(str(getattr(field, name)) for field in tile.fields)
            yield f"OG_INLINE int {name}(int field) {{ constexpr int of[] = {{{reached}}};"
            yield "  return of[field]; }"
        yield "OG_INLINE Real* updated_plane(const Slab& s, int field, int64_t level, int64_t z) {"
        for number, name in enumerate(self.evolving):
            yield f"  if (field == {number}) return {self.names.fields[name]}_plane(s, level, z);"
        yield "  return nullptr;\n}"
        yield (
            "OG_INLINE void make(const Slab& s, const Uniform& u,\n"
            "                    int64_t x, int64_t y, int64_t z, const bool (&updated)[kRows],\n"
            "                    const Real (&own)[kUpdated][kBelow + kLag + 1][kRows],\n"
            "                    const Real* const (&beside)[kUpdated][kLast - kFirst + 1],\n"
            "                    Real (&made)[kUpdated][kRows]) {"
        )
        yield indent("\n".join(self._rows()), "  ")
        yield "}\n"

    def launched(self) -> Iterator[str]:
        """The kernels: levels, and copies of planes that later slabs read."""
        kernel = 'extern "C" __global__ void'
        bounds = self.tile.across * self.tile.down
        for name, slabs in (("outgrid_levels", "true"), ("outgrid_levels_whole", "false")):
            yield f"{kernel} __launch_bounds__({bounds}, 1) {name}(const Slab s) {{"
            yield f"  make_levels<Stencil, {slabs}>(s);\n}}"
        yield f"{kernel} outgrid_borders(const Slab s) {{ copy_borders<Stencil>(s); }}"

    def _rows(self) -> Iterator[str]:
        """Statements that make a level of the cells of a thread."""
        loaded: dict[str, str] = {}
        yield "(void)s, (void)u, (void)x, (void)y, (void)z, (void)updated;"
        for row in range(self.tile.rows):
            yield from self._row(row, loaded)

    def _row(self, row: int, loaded: dict[str, str]) -> Iterator[str]:
        """Those of one row, where other rows have ``loaded`` some cells."""
        values: dict[Expression, str] = {}
        # Threads at the edges of a tile have cells outside the grid, where profiles are not.
        place = {
            axis: f"updated[{row}] ? {at} : 0"
            for axis, at in (("z", "z"), ("y", f"y + {row}"), ("x", "x"))
        }
        prefix = f"r{row}_"

        def read(access: Access) -> Generator[str, None, str]:
            if access in self.beside:
                tree = (self.beside[access],)
                (own,) = yield from statements(self.names, tree, read, values, prefix, place)
                return f"of_lane({own}, {access.offset[2]})"
            cell = self._cell(access, row)
            if cell not in loaded:
                loaded[cell] = f"c{len(loaded)}"
                yield f"const Real {loaded[cell]} = {cell};"
            return loaded[cell]

        made = yield from statements(self.names, self.trees, read, values, prefix, place)
        for number, value in enumerate(made):
            yield f"made[{number}][{row}] = {value};"

    def _by_columns(self, tree: Expression) -> Expression:
        """The tree in which the largest parts that read another column are its thread's values.

        Such a part is computed once, by the thread of the column, for all that need it.
        """
        found: dict[Expression, Expression] = {}
        pending = [tree]
        while pending:
            node = pending.pop()
            column = self._column(node)
            if column:
                access = Access(f"beside {len(self.beside)}", 0, (0, 0, column))
                self.beside[access] = shifted(node, (0, 0, -column))
                found[node] = access
            elif isinstance(node, Operation):
                pending.extend(node.operands)
        return substitute(tree, found)

    def _column(self, tree: Expression) -> int:
        """The column, counted from the own one, that a tree reads; 0 for several, and others."""
        columns: set[int] = set()
        for node in nodes(tree):
            if isinstance(node, Profile) or (
                isinstance(node, Access) and node.field not in self.evolving
            ):
                return 0
            if isinstance(node, Access):
                columns.add(node.offset[2])
        return columns.pop() if len(columns) == 1 else 0

    def _cell(self, access: Access, row: int) -> str:
        """Where a thread finds a cell: of the level before in a register, or shared.

        One of a field that stays as it is is read where the cell that needs it is updated.
        """
        plane, beyond, column = self.names.offset(access)
        if access.field not in self.evolving:
            planes = f"{self.names.fields[access.field]}_plane(s, s.base, z + ({plane}))"
            place = f"(y + {row + beyond}) * s.row_stride + x + ({column})"
            return f"updated[{row}] ? {planes}[{place}] : Real(0)"
        number = self.evolving.index(access.field)
        if column == 0 and 0 <= row + beyond < self.tile.rows:
            return f"own[{number}][{plane + self.tile.below}][{row + beyond}]"
        place = (row + beyond) * self.tile.across + column
        return f"beside[{number}][{plane - self.tile.first}][{place}]"
