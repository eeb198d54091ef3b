"""A stencil's kernel as readable C++: straight-line vector code inside loops that never change.

It is the headers of `codegen/templates`, the same for every stencil, and behind them the one
``struct Stencil`` that they ask for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from textwrap import indent

from outgrid.codegen.faces import Faces, FarFaces
from outgrid.codegen.headers import included
from outgrid.codegen.members import by_field, layers, pointers, row_images, uniform_struct
from outgrid.codegen.names import Names
from outgrid.codegen.reducing import Reductions
from outgrid.codegen.rows import Rows
from outgrid.codegen.slab import structure
from outgrid.codegen.statements import Statements, farthest_read
from outgrid.errors import DefinitionError
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.tiling import column_slope, tile_slope
from outgrid.stencil.boundary import Edges
from outgrid.stencil.expression import accesses
from outgrid.stencil.model import Stencil

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
    farthest = farthest_read(dtype)
    if stencil.radius[-1] > farthest:
        raise DefinitionError(
            f"stencil {stencil.name!r} reads {stencil.radius[-1]} cells away along x; kernels in "
            f"{dtype} reach {farthest}"
        )
    return _Kernel(Names(stencil, dtype, edges or Edges.fixed(stencil), apart or {})).text()


def row_groups(
    stencil: Stencil, dtype: str, edges: Edges, apart: Mapping[str, str]
) -> tuple[int, ...]:
    """In how many planes at once its kernel updates rows of some stage, most first."""
    rows = _Kernel(Names(stencil, dtype, edges, apart)).rows
    groups = {n for stage in range(len(stencil.stages)) for n in rows.groups(stage)}
    return tuple(sorted(groups, reverse=True))


class _Kernel:
    """The kernel for processors with vectors, put together from its parts."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.statements = Statements(names)
        self.faces = Faces(names, self.statements)
        self.rows = Rows(names, self.statements, self.faces)
        self.reductions = Reductions(names, self.statements, self.faces)

    def text(self) -> str:
        """The whole source."""
        radius = (
            self.names.radius
            if self.names.stencil.ndim == 3
            else (self.names.radius[0], 0, self.names.radius[1])
        )
        members = "\n".join(self._members())
        return "\n".join(
            [
                f"// Kernel of stencil {self.names.stencil.digest[:16]}, {self.names.dtype}: "
                f"{self.names.stencil.flops} flops per update, radius {radius},",
                f"// {self._moved_bytes()} per update where nothing is found in a cache.",
                *self._field_comments(),
                f"using Real = {self.names.real};",
                *self._folded(),
                included(
                    "cpu/kernel.hpp",
                    *["cpu/functions.hpp"] * self.names.elementary,
                    *["cpu/random.hpp"] * self.names.random,
                ),
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

    def _folded(self) -> Iterator[str]:
        """How rows are folded, where they are."""
        if (how := self.names.folded) is not None:
            yield f"#define OG_FOLD {how.rows}"
            yield f"#define OG_FOLDED_BYTES {how.vector_bytes}"

    def _members(self) -> Iterator[str]:
        """What the headers ask of a stencil."""
        stages = range(len(self.names.stages))
        yield layers(self.names)
        yield self._constants()
        yield self._updated_cells()
        yield uniform_struct(self.names)
        yield pointers(self.names)
        yield by_field(self.names)
        yield from row_images(self.names)
        if self.names.edged:
            yield from (self.faces.anywhere(field) for field in self.names.stencil.fields)
        yield self._keep_tile()
        if self.names.edged:
            yield from (self.faces.edge(stage) for stage in stages)
            yield from FarFaces(self.names, self.rows.outside).members()
        for stage in stages:
            yield from (self.rows.update(stage, n) for n in self.rows.groups(stage))
        yield self.rows.dispatch()
        yield self._fetches()
        yield from self.reductions.members()

    def _moved_bytes(self) -> str:
        """Bytes read and written per update: every level that is read, every field once."""
        levels = {(access.field, access.level) for access in self.names.stencil.accesses}
        item = {
            field.name: ITEM_BYTES[self.names.apart.get(field.name, self.names.dtype)]
            for field in self.names.stencil.fields
        }
        read = sum(item[field] for field, _ in levels)
        return (
            f"{read} bytes read, {sum(item[f.name] for f in self.names.stencil.evolving)} written"
        )

    def _constants(self) -> str:
        """Numbers of the stencil, and where each stage of a step works.

        Stages work planes behind the front, and rows or columns beside an edge.
        """
        slope = tile_slope(self.names.stencil, self.names.dtype, self.names.planned)
        aside = column_slope(self.names.stencil, self.names.dtype, self.names.planned)
        along = dependences(self.names.stencil, self.names.planned)
        shifts = (
            ", ".join(map(str, direction.skew().shifts)) for direction in (along, along.mirrored())
        )
        both = ", ".join(f"{{{shift}}}" for shift in shifts)
        flags = {
            "AcrossColumns": self.names.stencil.ndim == 2,
            "Circle": self.names.edges.periodic(1),  # tiles close round their axis
        }
        numbers = {
            "Fields": len(self.names.stencil.fields),
            "Parameters": len(self.names.stencil.parameters) + 1,  # and the step
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
                f"static constexpr int kStages = {len(self.names.stages)};",
                f"static constexpr int64_t kShift[2][kStages] = {{{both}}};  // upward, downward",
                *(
                    f"static constexpr int64_t k{k}[kStages] = {{{', '.join(map(str, v))}}};"
                    for k, v in by_stage.items()
                ),
                f"static constexpr int kReach = ({self.rows.farthest()} + kAcross - 1) / kAcross;"
                "  // vectors kept on either side of one",
            ]
        )

    def _updated_cells(self) -> str:
        """The function that gives `visit` one of each type that updated fields are kept in."""
        calls = " ".join(f"visit({cell}{{}});" for cell in self.names.updated)
        return (
            f"template <class Visit>\nOG_INLINE void for_cells(const Visit& visit) {{ {calls} }}\n"
        )

    def _field_comments(self) -> Iterator[str]:
        for number, field in enumerate(self.names.stencil.fields):
            kept = (
                f", kept in {self.names.apart[field.name]}"
                if field.name in self.names.apart
                else ""
            )
            yield f"//   {self.names.fields[field.name]} = field {number}{kept}"

    def _keep_tile(self) -> str:
        given = "const Slab& s, int64_t t, int stage, int64_t z, const Tile& c"
        lines = [f"OG_CALL void keep_tile({given}) {{"]
        for stage in range(len(self.names.stages)):
            lines.append(f"  if (stage == {stage}) {{")
            for field in self.names.ringed(stage):
                name = self.names.fields[field.name]
                to, source = (f"{name}_plane(s, s.base + t{back}, z)" for back in ("", " - 1"))
                lines.append(f"    keep({to}, {source}, s.row_stride, c);")
            for field in self.names.cleared(stage):
                plane = f"{self.names.fields[field.name]}_plane(s, s.base + t, z)"
                lines.append(f"    clear({plane}, s.row_stride, c);")
            lines.append("  }")
        return "\n".join([*lines, "  (void)s, (void)t, (void)z, (void)c;", "}", ""])

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
        for stage in range(len(self.names.stages) if self.names.stencil.ndim == 2 else 0):
            reaches: dict[tuple[str, int], tuple[int, int, int]] = {}
            for field, version, plane, column in self._places_read(stage):
                if version < 0:
                    low, high, farthest = reaches.get((field, version), (plane, plane, 0))
                    reach = min(plane, low), max(plane, high), max(abs(column), farthest)
                    reaches[field, version] = reach
            lines.append(f"  if (stage == {stage}) {{")
            for (field, version), (low, high, farthest) in reaches.items():
                name = self.names.fields[field]
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
        for _, assignment in self.statements.expressions(stage, 1):
            for access in accesses(assignment.expression):
                plane, _, column = self.names.offset(access)
                yield access.field, access.level, plane, column
