"""Reductions in a kernel: numbers over all updated cells of a step, the same for any tiling.

A row (in two dimensions a line of 64 bytes of it, since tiles cut rows there) is summed in a fixed
order: 16 partial sums by column, then pairwise. These sums are added exactly, as whole numbers of
32 bits each with its carry in a word of 64, so that neither the order of tiles nor that of
threads can be seen in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from outgrid.codegen.faces import Faces
from outgrid.codegen.names import Names
from outgrid.codegen.statements import Statements, Work
from outgrid.stencil.expression import Access, Expression

DIGITS, LOWEST = 68, 1126
"""Digits of 32 bits of a sum, and the exponent of 2 that its lowest bit stands for, negated."""


class Reductions:
    """The functions that reduce the cells of a tile."""

    def __init__(self, names: Names, statements: Statements, faces: Faces) -> None:
        self.names, self.statements, self.faces = names, statements, faces

    def members(self) -> Iterator[str]:
        """What is summed up, or compared, over the cells of a tile before they are updated."""
        yield f"static constexpr int kReductions = {len(self.names.stencil.reductions)};"
        if not self.names.stencil.reductions:
            return
        yield f"static_assert(kDigits == {DIGITS} && kLowest == {LOWEST});"
        number = 0
        calls: list[str] = []
        for stage, reduced in enumerate(self.names.reduced):
            if reduced:
                yield from self._reduce(stage, number)
                calls.append(f"  if (stage == {stage}) reduce_{stage}(s, u, t, z0, z1, c);")
                number += len(reduced)
        yield "\n".join(
            [
                "static void reduce(const Slab& s, const Uniform& u, int64_t t, int stage,",
                "                   int64_t z0, int64_t z1, const Tile& c) {",
                *calls,
                "}\n",
            ]
        )

    def _reduce(self, stage: int, number: int) -> Iterator[str]:
        """The reductions of one stage, ``number`` being that of the first of them."""
        work = self.statements.moved(self.names.reduced[stage], stage, 1)
        inputs = self.statements.inputs(work, stage, 1)
        kinds = [reduction.kind for reduction in self.names.stencil.stages[stage].reductions]
        yield f"static void reduce_{stage}(const Slab& s, const Uniform& u, int64_t t, int64_t z0,"
        yield "              int64_t z1, const Tile& c) {"
        yield "  (void)u;"
        yield "  const int64_t now = s.base + t, stride = s.row_stride;"
        yield f"  Total totals[{len(work)}];"
        yield "  for (int64_t z = z0; z < z1; ++z) {"
        yield from self.statements.planes(inputs)
        yield from self.statements.uniforms(work)
        yield from self.statements.profiles(work)
        yield from self.statements.row_offsets(work)
        yield "  const int64_t first = kLowX, last = s.columns - kHighX;"
        yield from self.faces.ends()
        # Images are looked up where one may be read, as in updates.
        inline = "__attribute__((always_inline))"
        yield f"  auto inside = [&](int64_t i, int64_t x) {inline} {{"
        yield from self._taken(work, kinds, partial(self.statements.load, inputs))
        yield "  };"
        if self.names.edged:
            yield f"  auto anywhere = [&](int64_t y, int64_t x) {inline} {{"
            yield from self._taken(work, kinds, self.faces.load_anywhere)
            yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self.statements.row_settings(work)
        yield "    for (int64_t x = c.x0; x < c.x1; x += kLanes) {"
        if self.names.edged:
            turned = " || ".join(["x < head", "x >= tail", *self.faces.turned(1)])
            yield f"      if ({turned}) anywhere(y, x);"
            yield "      else inside(row + x, x);"
        else:
            yield "      inside(row + x, x);"
        sums = (index for index, kind in enumerate(kinds) if kind == "sum")
        closing = " ".join(f"totals[{index}].close();" for index in sums)
        yield f"      if (kAcrossColumns && (x + kLanes) % kLine == 0) {{ {closing} }}"
        yield "    }"
        yield f"    {closing}"
        yield "  }"
        yield "  }"
        for index, kind in enumerate(kinds):
            to = f"s.totals + ((t - 1) * kReductions + {number + index}) * kCells"
            yield f"  totals[{index}].give_{'sum' if kind == 'sum' else 'most'}({to});"
        yield "}\n"

    def _taken(
        self,
        work: Work,
        kinds: list[str],
        load: Callable[[Access], str],
    ) -> Iterator[str]:
        """Statements that hand the values of one vector of cells to the totals."""
        values: dict[Expression, str] = {}
        for _, reduction in work:
            yield from (
                f"    {line}"
                for line in self.statements.compute(reduction.expression, values, load)
            )
        yield "    const M in = within(x, first, last);"
        for index, ((_, reduction), kind) in enumerate(zip(work, kinds, strict=True)):
            value = values[reduction.expression]
            if kind == "sum":
                yield f"    totals[{index}].sum(in ? V({value}) : V{{}}, x);"
            else:
                sign, least = (
                    "-" if kind == "min" else "",
                    f"all(-{self.names.real}(__builtin_huge_val()))",
                )
                yield f"    totals[{index}].most_of(in ? V({sign}{value}) : {least});"
