"""What rows keep for the next one, as code: a buffer of a vector for each column and value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from outgrid.codegen.rolling import Carried, carried
from outgrid.codegen.statements import LARGEST_VECTOR_BYTES, Inputs, Statements, Work, roots
from outgrid.stencil.expression import Access, Expression, flops, nodes, substitute_all
from outgrid.stencil.model import Assignment

__all__ = ["Carrying"]

BUFFER_BYTES = 16 << 10  # of all values: half of a first level
LEAST_VECTORS = 4  # of a part of a row for which there are buffers


class Carrying:
    """The values that are carried from row to row, and the work that is left."""

    def __init__(self, statements: Statements, work: Work, carries: bool) -> None:
        self._statements, self._work = statements, work
        self._values = _dearest(carried(roots(work))) if carries else ()
        self.carries = bool(self._values)  # whether there are any
        # No field has such a name, with a blank in it.
        self._kept = [Access(f"carried {n}", 0, (0, 0, 0)) for n in range(len(self._values))]
        known: dict[Expression, Expression] = {
            value.used: kept for value, kept in zip(self._values, self._kept, strict=True)
        }
        left = substitute_all(roots(work), known)
        self._made = substitute_all([value.made for value in self._values], known)
        self.left: Work = [
            (plane, Assignment(assignment.field, expression))
            for (plane, assignment), expression in zip(work, left, strict=True)
        ]

    def begun(self, inputs: Inputs, name: str) -> Iterator[str]:
        """Statements before the rows: the first one has none before it, so its values are made.

        Columns are updated in parts for which there are buffers, each by a call of its own.
        """
        if not self._values:
            return
        values: dict[Expression, str] = {}
        load = partial(self._statements.load, inputs)
        yield f"  constexpr int64_t kValues = {len(self._values)};"
        yield f"  constexpr int64_t kPart = {BUFFER_BYTES} / sizeof(V) / kValues * kLanes;"
        yield "  if (c.x1 - c.x0 > kPart) {"
        yield "    for (int64_t x = c.x0; x < c.x1; x += kPart) {"
        yield f"      {name}(s, u, t, z, Tile{{c.y0, c.y1, x, least(x + kPart, c.x1)}}, way);"
        yield "    }"
        yield "    return;"
        yield "  }"
        yield "  alignas(V) Real carried[kValues][kPart];"
        yield "  const int64_t from = c.x0;"
        yield "  {"
        yield "    const int64_t y = c.y0, row = y * stride;"
        yield "    const std::true_type edge;"
        yield "    (void)edge;"
        yield from self._statements.row_settings(self._work)
        yield "    for (int64_t x = c.x0; x < c.x1; x += kLanes) {"
        yield "      const int64_t i = row + x;"
        for number, value in enumerate(self._values):
            for line in self._statements.compute(value.used, values, load):
                yield f"      {line}"
            yield f"      {self._store(number, values[value.used])}"
        yield "    }"
        yield "  }"

    def loads(self, expression: Expression, values: dict[Expression, str]) -> Iterator[str]:
        """Statements for what an expression reads that the row before has made."""
        used = set(nodes(expression)) if self._values else set[Expression]()
        for number, kept in enumerate(self._kept):
            if kept in used and kept not in values:
                values[kept] = f"c{number}"
                yield f"const V c{number} = load(carried[{number}] + (x - from));"

    def stores(self, values: dict[Expression, str], done: set[int]) -> Iterator[str]:
        """Statements for what the next row needs and is made, once what it replaces is loaded."""
        for number, (made, kept) in enumerate(zip(self._made, self._kept, strict=True)):
            if number not in done and made in values and kept in values:
                done.add(number)
                yield self._store(number, values[made])

    @staticmethod
    def _store(number: int, value: str) -> str:
        return f"store(carried[{number}] + (x - from), {value});"


def _dearest(values: tuple[Carried, ...]) -> tuple[Carried, ...]:
    """Those that take the most operations, so many that buffers hold some vectors of each."""
    most = BUFFER_BYTES // (LEAST_VECTORS * LARGEST_VECTOR_BYTES)
    dearest = sorted(values, key=lambda value: flops(value.made), reverse=True)[:most]
    return tuple(value for value in values if value in dearest)
