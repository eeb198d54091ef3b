"""A stencil's kernel as readable C++: straight-line vector code inside loops that never change.

The unit of work is a row of one or more neighbouring planes: values that several planes read are
loaded once. Rows are whole vectors; cells of the boundary layer that share a vector with interior
cells are blended with the value they keep, so there are no remainder loops and every cell is
computed by the same instructions in the same order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from functools import partial
from textwrap import indent

from outgrid.codegen.block import block, block_vectors, spelled
from outgrid.codegen.headers import included
from outgrid.codegen.reducing import Reductions
from outgrid.codegen.rolling import Family, families
from outgrid.codegen.slab import structure
from outgrid.errors import DefinitionError
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES
from outgrid.plan.lifetime import dependences
from outgrid.plan.tiling import column_slope, tile_slope
from outgrid.stencil.boundary import Edges
from outgrid.stencil.expression import Expression, accesses
from outgrid.stencil.model import Assignment, Stencil

GROUPS = (8, 4, 2, 1)  # planes per row update, most first: they share the loads of a column
USUAL_GROUPS = GROUPS[1:]  # of most stencils
LARGEST_VECTOR_BYTES = 64
ENTRY = """\
extern "C" int outgrid_advance(const Slab* slab) { return advance<Stencil>(*slab); }
"""


def generate(
    stencil: Stencil,
    dtype: str,
    edges: Edges | None = None,
    apart: Mapping[str, str] | None = None,
) -> str:
    """C++ source of the kernel of ``stencil``, computed in ``dtype`` ("float32" or "float64").

    ``edges`` say what lies beyond the interior; without them, a fixed layer on all sides. ``apart``
    has the types of fields that are not kept in ``dtype``.
    Exports ``int outgrid_advance(const Slab*)``. Raises DefinitionError for a stencil that the
    generator does not cover.
    """
    farthest = (GUARD_BYTES - 2 * LARGEST_VECTOR_BYTES) // ITEM_BYTES[dtype]
    if stencil.radius[-1] > farthest:
        raise DefinitionError(
            f"stencil {stencil.name!r} reads {stencil.radius[-1]} cells away along x; kernels in "
            f"{dtype} reach {farthest}"
        )
    return _RowKernel(stencil, dtype, edges or Edges.fixed(stencil), apart or {}).text()


class _RowKernel(Reductions):
    """The kernel for processors with vectors."""

    def __init__(
        self, stencil: Stencil, dtype: str, edges: Edges, apart: Mapping[str, str]
    ) -> None:
        super().__init__(stencil, dtype, edges, apart)
        self.vectors = tuple(
            block_vectors([a.expression for _, a in self._expressions(stage, USUAL_GROUPS[0])])
            for stage in range(len(self.stages))
        )

    def _groups(self, stage: int) -> tuple[int, ...]:
        """How many planes rows may be updated in at once, most first.

        A group reads as many planes beside its own as the stencil reaches both ways. Where these
        outnumber its own, twice as many planes are worth the registers that they do not find.
        """
        beside = 2 * self.radius[0] if self.stencil.ndim == 3 else 0
        large = beside > USUAL_GROUPS[0] and self.vectors[stage] == 1
        return GROUPS if large else USUAL_GROUPS

    def text(self) -> str:
        """The whole source."""
        radius = self.radius if self.stencil.ndim == 3 else (self.radius[0], 0, self.radius[1])
        members = "\n".join(self._members())
        return "\n".join(
            [
                f"// Kernel of stencil {self.stencil.digest[:16]}, {self.dtype}: "
                f"{self.stencil.flops} flops per update, radius {radius},",
                f"// {self._moved_bytes()} per update where nothing is found in a cache.",
                *self._field_comments(),
                f"using Real = {self.real};",
                included("cpu/kernel.hpp", *["cpu/functions.hpp"] * self.elementary),
                "namespace {",
                "",
                f"static_assert(sizeof(Slab) == {ctypes.sizeof(structure('cpu/slab.hpp'))});",
                "",
                "struct Stencil {",
                indent(members, "  "),
                "};",
                "",
                "}  // namespace",
                "",
                ENTRY,
            ]
        )

    def _members(self) -> Iterator[str]:
        """What the headers ask of a stencil."""
        yield self.layers()
        yield self._constants()
        yield self.uniform_struct()
        yield self.pointers()
        yield self.by_field()
        yield from self.row_images()
        if self.edged:
            yield from (self._anywhere(field) for field in self.stencil.fields)
        yield self._keep_tile()
        if self.edged:
            yield from (self._edge(stage) for stage in range(len(self.stages)))
        for stage in range(len(self.stages)):
            yield from (self._update(stage, planes) for planes in self._groups(stage))
        yield self._dispatch()
        yield self._fetches()
        yield from self._reductions()

    def _moved_bytes(self) -> str:
        """Bytes read and written per update: every level that is read, every field once."""
        levels = {(access.field, access.level) for access in self.stencil.accesses}
        item = {
            each.name: ITEM_BYTES[self.apart.get(each.name, self.dtype)]
            for each in self.stencil.fields
        }
        read = sum(item[field] for field, _ in levels)
        return f"{read} bytes read, {sum(item[f.name] for f in self.stencil.evolving)} written"

    def _constants(self) -> str:
        """Numbers of the stencil, and where each stage of a step works.

        Stages work planes behind the front, and rows or columns beside an edge.
        """
        slope = tile_slope(self.stencil, self.dtype, self.edges)
        aside = column_slope(self.stencil, self.dtype, self.edges)
        found = dependences(self.stencil, self.edges)
        shifts = (", ".join(map(str, each.skew().shifts)) for each in (found, found.mirrored()))
        both = ", ".join(f"{{{each}}}" for each in shifts)
        flags = {
            "AcrossColumns": self.stencil.ndim == 2,
            "Circle": self.edges.periodic(1),  # tiles close round their axis
            "UpdatesFloat": "float" in self.updated,
            "UpdatesDouble": "double" in self.updated,
        }
        numbers = {
            "Fields": len(self.stencil.fields),
            "Parameters": len(self.stencil.parameters) + 1,  # and the step
            "Slope": slope.per_step,
            "Unit": slope.unit,
            "ColumnSlope": aside.per_step,
            "ColumnUnit": aside.unit,
        }
        by_stage = {"Fall": slope.falls, "Rise": slope.rises, "ColumnFall": aside.falls}
        return "\n".join(
            [
                *(f"static constexpr bool k{k} = {str(v).lower()};" for k, v in flags.items()),
                *(f"static constexpr int64_t k{k} = {v};" for k, v in numbers.items()),
                f"static constexpr int kStages = {len(self.stages)};",
                f"static constexpr int64_t kShift[2][kStages] = {{{both}}};  // upward, downward",
                *(
                    f"static constexpr int64_t k{k}[kStages] = {{{', '.join(map(str, v))}}};"
                    for k, v in by_stage.items()
                ),
                f"static constexpr int kReach = ({self._farthest()} + kLanes - 1) / kLanes;"
                "  // vectors kept on either side of one",
            ]
        )

    def _farthest(self) -> int:
        """The farthest cut of any rolled value, in cells."""
        return max(
            (
                abs(cut)
                for stage in range(len(self.stages))
                for planes in self._groups(stage)
                for family in families(a.expression for _, a in self._expressions(stage, planes))
                for cut in family.cuts.values()
            ),
            default=1,
        )

    def _field_comments(self) -> Iterator[str]:
        for number, field in enumerate(self.stencil.fields):
            kept = f", kept in {self.apart[field.name]}" if field.name in self.apart else ""
            yield f"//   {self.names[field.name]} = field {number}{kept}"

    def _keep_tile(self) -> str:
        given = "const Slab& s, int64_t t, int stage, int64_t z, const Tile& c"
        lines = [f"OG_CALL void keep_tile({given}) {{"]
        for stage in range(len(self.stages)):
            lines.append(f"  if (stage == {stage}) {{")
            for field in self.ringed(stage):
                name = self.names[field.name]
                to, source = (f"{name}_plane(s, s.base + t{back}, z)" for back in ("", " - 1"))
                lines.append(f"    keep({to}, {source}, s.row_stride, c);")
            lines.append("  }")
        return "\n".join([*lines, "  (void)s, (void)t, (void)z, (void)c;", "}", ""])

    def _update(self, stage: int, planes: int) -> str:
        """Rows [y0, y1) of ``planes`` planes from z on, whole rows of vectors."""
        work = self._expressions(stage, planes)
        inputs = self._inputs(work, stage, planes)
        wide = self.vectors[stage] > 1
        ends = self._ends_of_row(stage, planes)
        rolled = () if wide else families(assignment.expression for _, assignment in work)
        lines = [
            f"static void update_{stage}_{planes}(const Slab& s, const Uniform& u, int64_t t,",
            "                       int64_t z, const Tile& c) {",
            "  (void)u;",
            "  const int64_t now = s.base + t, stride = s.row_stride;",
        ]
        for (field, version, plane), name in inputs.items():
            lines.append(
                f"  const {self.stored(field)}* const {name} = "
                f"{self.names[field]}_plane(s, now + ({version}), {self.plane(field, plane)});"
            )
        for plane in range(planes):
            for field in self._updated(stage):
                name = self.names[field.name]
                lines.append(
                    f"  auto* const {name}_out{plane} = {name}_plane(s, now, z + {plane});"
                )
        if not wide:
            lines += [
                f"  const {self._vector(node)} {self.uniform[node]}v = all(u.{self.uniform[node]});"
                for node in self._used_uniforms(work)
            ]
        lines += [
            *self._profiles(work),
            *self._row_offsets(work),
            "  const int64_t first = kLowX, last = s.columns - kHighX;",
            *self._ends(),
            *(
                self._block_loop(work, inputs, self.vectors[stage], ends)
                if wide
                else (self._rolled_loop if rolled else self._loop)(work, inputs, rolled, ends)
            ),
            "}",
            "",
        ]
        return "\n".join(lines)

    def _loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of vectors, each on its own; ``ends`` are the loops over those at the ends."""
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(work, inputs, rolled))
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self._row_settings(work)
        yield "    int64_t x = c.x0;"
        blended = "cells(row + x, x, std::true_type{})"
        yield ends[0] if ends else f"    for (; x < head; x += kLanes) {blended};"
        yield "    for (; x < tail; x += kLanes) cells(row + x, x, std::false_type{});"
        yield ends[1] if ends else f"    for (; x < c.x1; x += kLanes) {blended};"
        yield "  }"

    def _block_loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        vectors: int,
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of blocks of kBlock vectors, and of single ones at the end of a row."""
        found = block(
            [a.expression for _, a in work],
            self._row,
            lambda profile: self._profile(profile, " + n * kLanes"),
        )
        before, inside = spelled(found, inputs, self.stored)
        weights = [
            f"u.{self.uniform[weight]}" if weight in self.uniform else self.scalar(weight)
            for weight in found.weights
        ]
        yield f"  constexpr int kBlock = kRegisters == 32 ? {vectors} : {vectors // 2};"
        yield f"  const {self.real} given[] = {{{', '.join(weights)}}};"
        yield f"  const {self.real}* w = given;"
        yield '  asm volatile("" : "+r"(w) : : "memory");  // numbers are broadcast from memory'
        yield from (f"  {line}" for line in before)
        yield "  auto cells = [&](int64_t i, int64_t x, auto wide) __attribute__((always_inline)) {"
        yield "    constexpr int kWide = wide.value;"
        yield from (f"    {line}" for line in inside)
        if not ends:
            yield "    if (x < head || x + kWide * kLanes > tail) {"
            for (plane, assignment), result in zip(work, found.results, strict=True):
                kept = f"load({inputs[assignment.field, -1, plane]} + i + n * kLanes)"
                chosen = f"within(x + n * kLanes, first, last) ? v{result}[n] : {kept}"
                yield f"      OG_VECTORS v{result}[n] = {chosen};"
            yield "    }"
        for (plane, assignment), result in zip(work, found.results, strict=True):
            to = f"{self.names[assignment.field]}_out{plane} + i + n * kLanes"
            yield f"    OG_VECTORS store({to}, v{result}[n]);"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self._row_settings(work)
        yield "    int64_t x = c.x0;"
        last = "tail" if ends else "c.x1"
        if ends:
            yield ends[0]
        yield f"    for (; x + (kBlock - 1) * kLanes < {last}; x += kBlock * kLanes) {{"
        yield "      cells(row + x, x, std::integral_constant<int, kBlock>{});"
        yield "    }"
        yield f"    for (; x < {last}; x += kLanes) {{"
        yield "      cells(row + x, x, std::integral_constant<int, 1>{});"
        yield "    }"
        if ends:
            yield ends[1]
        yield "  }"

    def _rolled_loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of vectors that share values: r0[kReach] belongs to the current vector."""
        count = len(rolled)
        yield f"  V r[{count}][2 * kReach + 1];"
        yield "  auto ahead = [&](int64_t i) __attribute__((always_inline)) {"
        yield from (f"    {line}" for line in self._ahead(rolled, inputs))
        yield "  };"
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(work, inputs, rolled))
        yield "  };"
        yield "  auto roll = [&]() __attribute__((always_inline)) {"
        yield f"    for (int n = 0; n < {count}; ++n) {{"
        yield "      for (int v = 0; v < 2 * kReach; ++v) r[n][v] = r[n][v + 1];"
        yield "    }"
        yield "  };"
        yield "  auto next = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    ahead(i + kReach * kLanes);"
        yield "    cells(i, x, edge);"
        yield "    roll();"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self._row_settings(work)
        yield "    int64_t x = c.x0;"
        if ends:
            yield ends[0]
        yield "    for (int v = -kReach; v < kReach; ++v) {"
        yield "      ahead(row + x + v * kLanes);"
        yield "      roll();"
        yield "    }"
        blended = "next(row + x, x, std::true_type{})"
        if not ends:
            yield f"    for (; x < head; x += kLanes) {blended};"
        yield "    for (; x < tail; x += kLanes) next(row + x, x, std::false_type{});"
        yield ends[1] if ends else f"    for (; x < c.x1; x += kLanes) {blended};"
        yield "  }"

    def _ahead(
        self, rolled: tuple[Family, ...], inputs: dict[tuple[str, int, int], str]
    ) -> Iterator[str]:
        """Statements for the values that are evaluated one vector ahead."""
        load = partial(self._load, inputs)
        values: dict[Expression, str] = {}
        for family in rolled:
            yield from self._statements(family.expression, values, load)
        for number, family in enumerate(rolled):
            yield f"r[{number}][2 * kReach] = {values[family.expression]};"

    def _body(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
    ) -> Iterator[str]:
        """Statements for one vector of cells in each plane."""
        load = partial(self._load, inputs)
        values: dict[Expression, str] = {
            node: f"shifted<{cut}>(r[{number}])"
            for number, family in enumerate(rolled)
            for node, cut in family.cuts.items()
        }
        results: list[tuple[int, str, str]] = []
        for plane, assignment in work:
            yield from self._statements(assignment.expression, values, load)
            results.append((plane, assignment.field, values[assignment.expression]))
        yield "if constexpr (edge.value) {"
        yield "  const M in = within(x, first, last);"
        for plane, field, value in results:
            kept = f"load({inputs[field, -1, plane]} + i)"
            yield f"  store({self.names[field]}_out{plane} + i, in ? {value} : {kept});"
        yield "} else {"
        for plane, field, value in results:
            yield f"  store({self.names[field]}_out{plane} + i, {value});"
        yield "}"

    def _fetches(self) -> str:
        """The function that fetches what a level is the first in its diamond to read.

        These are as many lines of cells as an edge moves by from level to level, as far beyond it
        as the stencil reaches, in the highest plane that each plane reads.
        """
        lines = [
            "template <int kSide>",
            "OG_INLINE void fetch_ahead(",
            "    const Slab& s, int64_t t, int stage, int64_t z0, int64_t z1, int64_t edge) {",
            "  int64_t ahead = 0;",
            "  (void)s, (void)t, (void)stage, (void)z0, (void)z1, (void)edge, (void)ahead;",
        ]
        for stage in range(len(self.stages) if self.stencil.ndim == 2 else 0):
            reaches: dict[tuple[str, int], tuple[int, int, int]] = {}
            for field, version, plane, column in self._places_read(stage):
                if version < 0:
                    low, high, farthest = reaches.get((field, version), (plane, plane, 0))
                    found = min(plane, low), max(plane, high), max(abs(column), farthest)
                    reaches[field, version] = found
            lines.append(f"  if (stage == {stage}) {{")
            for (field, version), (low, high, farthest) in reaches.items():
                name = self.names[field]
                lines += [
                    f"    ahead = s.downward ? {-low} : {high};",
                    "    for (int64_t z = most(z0 + ahead, 0), end = least(z1 + ahead, s.planes); "
                    "z < end; ++z) {",
                    f"      fetch<kSide, kSlope, {farthest}>("
                    f"{name}_plane(s, s.base + t + ({version}), streamed(s, z)) + edge);",
                    "    }",
                ]
            lines.append("  }")
        return "\n".join([*lines, "}", ""])

    def _places_read(self, stage: int) -> Iterator[tuple[str, int, int, int]]:
        """(field, version, plane, column) of all that a stage reads to update a cell."""
        for _, assignment in self._expressions(stage, 1):
            for access in accesses(assignment.expression):
                plane, _, column = self.offset(access)
                yield access.field, access.level, plane, column

    def _dispatch(self) -> str:
        """The largest group that fits into ``n`` planes; returns the planes taken."""
        lines = [
            "static int64_t update_planes(const Slab& s, const Uniform& u, int64_t t, int stage,",
            "                             int64_t z, int64_t n, const Tile& c) {",
            "  (void)stage;",
        ]
        last = len(self.stages) - 1
        for stage in range(last + 1):
            lines.append(f"  if (stage == {stage}) {{" if stage < last else "  {")
            for planes in self._groups(stage):
                condition = f"if (n >= {planes}) " if planes > 1 else ""
                call = f"update_{stage}_{planes}(s, u, t, z, c), {planes}"
                lines.append(f"    {condition}return {call};")
            lines.append("  }")
        return "\n".join([*lines, "}", ""])
