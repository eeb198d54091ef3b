"""A stencil's kernel as CUDA C++: one thread per column of cells, the tree of the CPU's kernel.

Every cell is computed by the same operations in the same order as on a processor, each rounded
once: products are fused where the tree says ``fma`` and nowhere else (``--fmad=false``), divisions
and roots are rounded to nearest, subnormal numbers are kept. So a device gives the same bytes, also
of elementary functions, which are made of the same operations.

A level is one launch per stage. Threads of a block stand side by side along x and y and walk along
the planes, so that neighbours in a plane are read together and those before and behind stay in the
second-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outgrid.codegen.headers import included
from outgrid.codegen.names import Names
from outgrid.codegen.spelling import SPELLING
from outgrid.errors import DefinitionError
from outgrid.stencil.boundary import Edges
from outgrid.stencil.expression import Access, Constant, Expression, Operation, Profile, nodes
from outgrid.stencil.model import Stencil
from outgrid.stencil.symbol import AXES

__all__ = ["generate_cuda"]

SLAB = r"""
// One level, all in plane numbers of the sweep. Rings hold addresses of planes on the device.
struct Slab {
  const char* const* rings[RINGS];  // [ring][plane]
  const double* parameters;         // of the level
  const REAL* const* profiles;      // [profile][index along its axis]
  const int64_t* injected;          // rows of (field, plane, row, column)
  const double* amounts;            // of the level
  const int64_t* sampled;
  double* samples;
  long long* broken;                // the place of the first value seen that is not finite
  int64_t injections, receptions;
  int64_t planes, rows, columns, row_stride;
  int64_t base, t;                  // the level is t, in ring (base + t) mod m
  int64_t z0, z1, y0, y1;           // what is updated
  int64_t row_offset;               // elements from a plane's address to its row 0
  int64_t deep;                     // planes that one thread walks through
  int64_t period;                   // so many planes on the first ones come again; or 0
};

// The plane z of those that are updated, or of those a period later.
OG_INLINE int64_t turned(const Slab& s, int64_t z) {
  return z + s.period < s.z1 ? z + s.period : z;
}
"""

POINTS = r"""
// Sources add to what was just made, then receivers look at it; one thread, in the given order.
VOID points_STAGE(const Slab s) {
  for (int64_t n = 0; n < s.injections; ++n) {
    const int64_t* at = s.injected + 4 * n;
    if (!holds(s, at, STAGE)) continue;
    REAL* plane = plane_of(s, at[0], s.base + s.t, turned(s, at[1]));
    plane[at[2] * s.row_stride + at[3]] += REAL(s.amounts[n]);
  }
  for (int64_t n = 0; n < s.receptions; ++n) {
    const int64_t* at = s.sampled + 4 * n;
    if (!holds(s, at, STAGE)) continue;
    const REAL* plane = plane_of(s, at[0], s.base + s.t, turned(s, at[1]));
    s.samples[n] = plane[at[2] * s.row_stride + at[3]];
  }
}
"""

WATCH = r"""
// Notes the first value that is no finite number of what was just made, counted by level, stage,
// plane, row, column and field, and twice: infinite, or NaN.
VOID watch_STAGE(const Slab s) {
  const int64_t x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t y = s.y0 + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
  if (x >= s.columns || y >= s.y1) return;
  const int64_t first = s.z0 + int64_t(blockIdx.z) * s.deep;
  const int64_t end = first + s.deep < s.z1 ? first + s.deep : s.z1;
  for (int64_t z = first; z < end; ++z) {
    for (int64_t field = 0; field < kFields; ++field) {
      if (kWriter[field] != STAGE) continue;
      const REAL value = plane_of(s, field, s.base + s.t, z)[y * s.row_stride + x];
      if (value - value == 0) continue;
      int64_t place = (s.t - 1) * kStages + STAGE;
      place = place * s.planes + (s.period > 0 ? z % s.period : z);
      place = ((place * s.rows + y) * s.columns + x) * kFields + field;
      atomicMin(s.broken, 2 * place + (value != value));
    }
  }
}
"""

HOLDS = r"""
OG_INLINE bool holds(const Slab& s, const int64_t* at, int stage) {
  const int64_t z = turned(s, at[1]);
  return kWriter[at[0]] == stage && z >= s.z0 && z < s.z1 && at[2] >= s.y0 && at[2] < s.y1;
}
"""


KERNEL = 'extern "C" __global__ void outgrid_'


def generate_cuda(
    stencil: Stencil,
    dtype: str,
    edges: Edges | None = None,
    apart: Mapping[str, str] | None = None,
) -> str:
    """CUDA C++ of the kernels of ``stencil``, computed in ``dtype``, without any header.

    For each stage j there are ``outgrid_update_j(Slab)``, launched over columns and rows of the
    grid and over groups of ``deep`` planes, ``outgrid_points_j(Slab)``, launched with a single
    thread where there are sources or receivers, and ``outgrid_watch_j(Slab)``, launched like the
    first, which looks for values that are not finite. `outgrid.device.cuda.CUDA_OPTIONS` say how
    it is to be compiled.
    """
    if stencil.reductions:
        raise DefinitionError(
            f"stencil {stencil.name!r} has reductions, which kernels for a device do not compute"
        )
    return _CudaWriter(stencil, dtype, edges or Edges.fixed(stencil), apart or {}).text()


class _CudaWriter(Names):
    """Names and pieces of the kernels for a device."""

    def text(self) -> str:
        """The whole source."""
        count, uniform = len(self.stages), self.updated == (self.real,)
        return "\n".join(
            [
                f"// Kernels of stencil {self.stencil.digest[:16]}, {self.dtype}.",
                f"typedef {self.real} Real;",
                included("cuda/numbers.hpp", *["elementary.hpp"] * self.elementary),
                SLAB.replace("REAL", self.real).replace("RINGS", str(len(self.rings))),
                self.layers(),
                self.writers(),
                f"constexpr int kStages = {count};",
                f"constexpr int64_t kFields = {len(self.stencil.fields)};",
                "",
                self.uniform_struct().replace("void set(", "__device__ void set("),
                self.pointers(),
                *self.row_images(),
                *([HOLDS] if uniform else ()),
                *(self._level(stage) for stage in range(count)),
                *(self._visits(KERNEL, self.real) if uniform else self._visits_by_type()),
            ]
        )

    def _visits(self, void: str, cell: str) -> Iterator[str]:
        """What looks at updated cells one by one, where they are of one type."""
        for stage in range(len(self.stages)):
            for text in (POINTS, WATCH):
                named = text.replace("STAGE", str(stage)).replace("VOID ", void)
                yield named.replace("REAL", cell)

    def _visits_by_type(self) -> Iterator[str]:
        """The same for each type that such cells are kept in."""
        for cell in self.updated:
            yield f"namespace of_{cell} {{"
            yield self.writers(cell)
            yield self.plane_of(cell)
            yield HOLDS
            yield from self._visits("OG_INLINE void ", cell)
            yield "}"
        for stage in range(len(self.stages)):
            for name in ("points", "watch"):
                yield f"{KERNEL}{name}_{stage}(const Slab s) {{"
                yield from (f"  of_{cell}::{name}_{stage}(s);" for cell in self.updated)
                yield "}"

    def _level(self, stage: int) -> str:
        """The launch that updates what stage ``stage`` assigns."""
        return "\n".join(
            [
                f'extern "C" __global__ void outgrid_update_{stage}(const Slab s) {{',
                "  const int64_t x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;",
                "  const int64_t y = s.y0 + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;",
                "  if (x >= s.columns || y >= s.y1) return;",
                "  Uniform u;",
                "  u.set(s.parameters);",
                "  const int64_t now = s.base + s.t, first = s.z0 + int64_t(blockIdx.z) * s.deep;",
                "  const int64_t end = first + s.deep < s.z1 ? first + s.deep : s.z1;",
                "  const bool within = x >= kLowX && x < s.columns - kHighX && y >= kLowY &&",
                "                      y < s.rows - kHighY;",
                *(f"  {line}" for line in self._places(stage)),
                "  for (int64_t z = first; z < end; ++z) {",
                "    if (within && z >= kLowZ && z < s.planes - kHighZ) {",
                *(f"      {line}" for line in self._cell(stage)),
                "    } else {",
                *(f"      {line}" for line in self._kept(stage)),
                "    }",
                "  }",
                "}",
                "",
            ]
        )

    def _accesses(self, stage: int) -> list[Access]:
        found = {
            node: None
            for assignment in self.stages[stage]
            for node in nodes(assignment.expression)
            if isinstance(node, Access)
        }
        return list(found)

    def _places(self, stage: int) -> Iterator[str]:
        """Distances, in elements, from a plane's row 0 to what is read in it."""
        seen: set[str] = set()
        for name, row, column, field in (
            (self._place(access), *self.offset(access)[1:], access.field)
            for access in self._accesses(stage)
        ):
            if name in seen:
                continue
            seen.add(name)
            at_row = self._imaged(field, "y", row, "s.rows") if self.stencil.ndim == 3 else "y"
            at_column = self._imaged(field, "x", column, "s.columns")
            yield f"const int64_t {name} = ({at_row}) * s.row_stride + ({at_column});"

    def _imaged(self, field: str, axis: str, offset: int, extent: str) -> str:
        place = f"{axis} + ({offset})" if offset else axis
        image = self.image(field, axis) if offset else None
        return place if image is None else f"{image}({place}, {extent})"

    def _signs(self, access: Access) -> Iterator[str]:
        """With which signs images of the access are read."""
        extents = {"z": "s.planes", "y": "s.rows", "x": "s.columns"}
        for axis, offset in zip(AXES, self.offset(access), strict=True):
            named = "y" if self.stencil.ndim == 2 and axis == "z" else axis
            sign = self.sign(access.field, named) if offset else None
            if sign:
                yield f"{sign}({axis} + ({offset}), {extents[axis]})"

    def _place(self, access: Access) -> str:
        _, row, column = self.offset(access)
        imaged = [
            axis
            for axis, offset in zip(AXES[1:], (row, column), strict=True)
            if offset and self.image(access.field, axis)
        ]
        whose = self.names[access.field] if imaged else "at"
        return f"{whose}_{_signed(row)}_{_signed(column)}"

    def _cell(self, stage: int) -> Iterator[str]:
        """Statements that compute one cell and store it."""
        values: dict[Expression, str] = {}
        planes: dict[tuple[str, int, int], str] = {}
        stores: list[str] = []
        for assignment in self.stages[stage]:
            for node in nodes(assignment.expression):
                if node in values:
                    continue
                if node in self.uniform:
                    values[node] = f"u.{self.uniform[node]}"
                elif isinstance(node, Constant):
                    values[node] = self.scalar(node)
                elif isinstance(node, Profile):
                    place = ("z", *AXES[4 - self.stencil.ndim :])[node.axis]
                    number = self.profiles.index(node.name)
                    values[node] = f"s.profiles[{number}][{place}]"
                elif isinstance(node, Access):
                    version = self.stencil.version(stage, node)
                    key = (node.field, version, self.offset(node)[0])
                    if key not in planes:
                        planes[key] = f"plane{len(planes)}"
                        yield (
                            f"const {self.stored(node.field)}* const {planes[key]}"
                            f" = {self.names[node.field]}"
                            f"_plane(s, now + ({version}), {self.plane(node.field, key[2])});"
                        )
                    values[node] = f"v{len(values)}"
                    place = self._place(node)
                    signs = "".join(f"{sign} * " for sign in self._signs(node))
                    yield f"const {self.real} {values[node]} = {signs}{planes[key]}[{place}];"
                elif isinstance(node, Operation):
                    operands = [values[operand] for operand in node.operands]
                    values[node] = f"v{len(values)}"
                    spelled = SPELLING[node.name].format(*operands)
                    yield f"const {self.type(node)} {values[node]} = {spelled};"
            target = f"{self.names[assignment.field]}_plane(s, now, z)[y * s.row_stride + x]"
            stores.append(f"{target} = {values[assignment.expression]};")
        yield from stores

    def _kept(self, stage: int) -> Iterator[str]:
        """Statements that carry a cell of a layer on to the next level."""
        place = "[y * s.row_stride + x]"
        for name in (self.names[field.name] for field in self.ringed(stage)):
            yield f"{name}_plane(s, now, z){place} = {name}_plane(s, now - 1, z){place};"


def _signed(offset: int) -> str:
    return f"{'m' if offset < 0 else 'p'}{abs(offset)}"
