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

from collections.abc import Generator, Iterator, Mapping
from textwrap import indent

from outgrid.codegen.cell import statements
from outgrid.codegen.headers import included
from outgrid.codegen.members import by_field, layers, pointers, row_images, uniform_struct
from outgrid.codegen.names import Names
from outgrid.codegen.onchip import ChipUpdate
from outgrid.errors import DefinitionError
from outgrid.machine import SHARED_BYTES
from outgrid.plan.onchip import chip_tile
from outgrid.stencil.boundary import Edges
from outgrid.stencil.expression import Access, accesses
from outgrid.stencil.model import Stencil
from outgrid.stencil.symbol import AXES

__all__ = ["generate_cuda"]


def generate_cuda(
    stencil: Stencil,
    dtype: str,
    edges: Edges | None = None,
    apart: Mapping[str, str] | None = None,
    shared_bytes: int = SHARED_BYTES,
) -> str:
    """CUDA C++ of the kernels of ``stencil``, computed in ``dtype``, without any header.

    For each stage j there are ``outgrid_update_j(Slab)``, launched over columns and rows of the
    grid and over groups of ``deep`` planes, ``outgrid_points_j(Slab)``, launched with a single
    thread where there are sources or receivers, and ``outgrid_watch_j(Slab)``, launched like the
    first, which looks for values that are not finite. Where there is a `chip_tile` for a device
    whose blocks share ``shared_bytes``, there are also those of `ChipUpdate`.
    `outgrid.device.cuda.CUDA_OPTIONS` say how it is to be compiled.
    """
    if stencil.reductions:
        raise DefinitionError(
            f"stencil {stencil.name!r} has reductions, which kernels for a device do not compute"
        )
    names = Names(stencil, dtype, edges or Edges.fixed(stencil), apart or {})
    return _Kernels(names, shared_bytes).text()


class _Kernels:
    """The kernels for a device."""

    def __init__(self, names: Names, shared_bytes: int) -> None:
        self.names = names
        given = names.stencil, names.dtype, names.planned, names.apart
        tile = chip_tile(*given, shared_bytes)
        self.chip = None if tile is None else ChipUpdate(names, tile)

    def text(self) -> str:
        """The whole source."""
        return "\n".join(
            [
                f"// Kernels of stencil {self.names.stencil.digest[:16]}, {self.names.dtype}.",
                f"typedef {self.names.real} Real;",
                f"constexpr int kRings = {len(self.names.rings)};",
                included(
                    "cuda/visits.hpp",
                    *["cuda/onchip.hpp"] * (self.chip is not None),
                    *["elementary.hpp"] * self.names.elementary,
                    *["cuda/random.hpp"] * self.names.random,
                ),
                "struct Stencil {",
                indent("\n".join(self._members()), "  "),
                "};",
                "",
                *(
                    line
                    for stage in range(len(self.names.stages))
                    for line in self._launched(stage)
                ),
                *(self.chip.launched() if self.chip is not None else ()),
            ]
        )

    def _members(self) -> Iterator[str]:
        """What the headers ask of a stencil, and the update of each stage."""
        yield layers(self.names)
        yield f"static constexpr int kStages = {len(self.names.stages)};"
        yield f"static constexpr int64_t kFields = {len(self.names.stencil.fields)};"
        yield uniform_struct(self.names)
        yield pointers(self.names)
        yield by_field(self.names)
        yield from row_images(self.names)
        yield from (self._update(stage) for stage in range(len(self.names.stages)))
        if self.chip is not None:
            yield from self.chip.members()

    def _launched(self, stage: int) -> Iterator[str]:
        """The kernels of a stage."""
        kernel = 'extern "C" __global__ void outgrid_'
        yield f"{kernel}update_{stage}(const Slab s) {{ Stencil::update_{stage}(s); }}"
        for name in ("points", "watch"):
            calls = " ".join(f"{name}<{cell}, Stencil>(s, {stage});" for cell in self.names.updated)
            yield f"{kernel}{name}_{stage}(const Slab s) {{ {calls} }}"

    def _update(self, stage: int) -> str:
        """The update of the cells of a thread by a stage."""
        return "\n".join(
            [
                f"OG_INLINE void update_{stage}(const Slab& s) {{",
                "  const Walk w = walk(s);",
                "  if (!w.there) return;",
                "  const Uniform u = Uniform::of(s.parameters);",
                "  const int64_t x = w.x, y = w.y, now = s.base + s.t;",
                "  const bool within = x >= kLowX && x < s.columns - kHighX && y >= kLowY &&",
                "                      y < s.rows - kHighY;",
                *(f"  {line}" for line in self._places(stage)),
                "  for (int64_t z = w.first; z < w.end; ++z) {",
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

    def _places(self, stage: int) -> Iterator[str]:
        """Distances, in elements, from a plane's row 0 to what is read in it."""
        seen: set[str] = set()
        for name, row, column, field in (
            (self._place(access), *self.names.offset(access)[1:], access.field)
            for assignment in self.names.stages[stage]
            for access in accesses(assignment.expression)
        ):
            if name in seen:
                continue
            seen.add(name)
            at_row = (
                self._imaged(field, "y", row, "s.rows") if self.names.stencil.ndim == 3 else "y"
            )
            at_column = self._imaged(field, "x", column, "s.columns")
            yield f"const int64_t {name} = ({at_row}) * s.row_stride + ({at_column});"

    def _imaged(self, field: str, axis: str, offset: int, extent: str) -> str:
        place = f"{axis} + ({offset})" if offset else axis
        image = self.names.image(field, axis) if offset else None
        return place if image is None else f"{image}({place}, {extent})"

    def _signs(self, access: Access) -> Iterator[str]:
        """With which signs images of the access are read."""
        extents = {"z": "s.planes", "y": "s.rows", "x": "s.columns"}
        for axis, offset in zip(AXES, self.names.offset(access), strict=True):
            named = "y" if self.names.stencil.ndim == 2 and axis == "z" else axis
            sign = self.names.sign(access.field, named) if offset else None
            if sign:
                yield f"{sign}({axis} + ({offset}), {extents[axis]})"

    def _place(self, access: Access) -> str:
        _, row, column = self.names.offset(access)
        imaged = [
            axis
            for axis, offset in zip(AXES[1:], (row, column), strict=True)
            if offset and self.names.image(access.field, axis)
        ]
        whose = self.names.fields[access.field] if imaged else "at"
        return f"{whose}_{_signed(row)}_{_signed(column)}"

    def _cell(self, stage: int) -> Iterator[str]:
        """Statements that compute one cell and store it."""
        planes: dict[tuple[str, int, int], str] = {}

        def read(access: Access) -> Generator[str, None, str]:
            version = self.names.stencil.version(stage, access)
            key = (access.field, version, self.names.offset(access)[0])
            if key not in planes:
                planes[key] = f"plane{len(planes)}"
                yield (
                    f"const {self.names.stored(access.field)}* const {planes[key]}"
                    f" = {self.names.fields[access.field]}"
                    f"_plane(s, now + ({version}), {self.names.plane(access.field, key[2])});"
                )
            signs = "".join(f"{sign} * " for sign in self._signs(access))
            return f"{signs}{planes[key]}[{self._place(access)}]"

        assignments = self.names.stages[stage]
        trees = [assignment.expression for assignment in assignments]
        made = yield from statements(self.names, trees, read, {})
        for assignment, value in zip(assignments, made, strict=True):
            target = f"{self.names.fields[assignment.field]}_plane(s, now, z)[y * s.row_stride + x]"
            yield f"{target} = {value};"

    def _kept(self, stage: int) -> Iterator[str]:
        """Statements that carry a cell of a layer on to the next level."""
        place = "[y * s.row_stride + x]"
        for name in (self.names.fields[field.name] for field in self.names.ringed(stage)):
            yield f"{name}_plane(s, now, z){place} = {name}_plane(s, now - 1, z){place};"
        for name in (self.names.fields[field.name] for field in self.names.cleared(stage)):
            yield f"{name}_plane(s, now, z){place} = 0;"


def _signed(offset: int) -> str:
    return f"{'m' if offset < 0 else 'p'}{abs(offset)}"
