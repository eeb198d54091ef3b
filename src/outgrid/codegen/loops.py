"""The loops of an update over the vectors of its rows: one by one, by columns, in blocks, ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outgrid.codegen.block import block, spelled
from outgrid.codegen.statements import roots
from outgrid.codegen.two_loops import two_loops
from outgrid.codegen.waist import waist
from outgrid.stencil.expression import Access, Expression, nodes

if TYPE_CHECKING:
    from outgrid.codegen.update import Update

__all__ = ["blocked", "narrow", "plain", "rolled"]

CELLS = "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
BLENDED = "cells(row + x * kFold, x, std::true_type{})"
INSIDE = "cells(row + x * kFold, x, std::false_type{})"


def plain(update: Update) -> Iterator[str]:
    """Rows of vectors, each on its own, or of very many operations in parts, by two loops each."""
    left = update.carrying.left
    whole = update.carrying.carries or update.names.folded
    first = () if whole else waist(roots(left))
    yield CELLS
    yield "    (void)x;"
    yield from (f"    {line}" for line in update.body())
    yield "  };"
    if first:
        yield from two_loops(update.names, update.statements, left, update.inputs, first)
    yield from _each_row(update)
    yield update.ends[0] if update.ends else f"    for (; x < head; x += kAcross) {BLENDED};"
    if first:
        yield "    for (int64_t end; x < tail; x = end) {"
        yield "      end = least(tail, x + kPart);"
        yield "      update_part(row, x, end);"
        yield "    }"
    else:
        yield f"    for (; x < tail; x += kAcross) {INSIDE};"
    yield update.ends[1] if update.ends else f"    for (; x < c.x1; x += kAcross) {BLENDED};"
    yield "  }"


def narrow(update: Update) -> Iterator[str]:
    """Columns of vectors, of which each is at an edge in all rows or in none.

    No stream of the processor follows them, so what the next row reads first is fetched. What
    differs along rows alone is looked up once for a column.
    """
    left, highest, lies = update.carrying.left, dict[str, int](), dict[str, str]()
    along = update.statements.along_rows(left)
    yield from (f"  V {name}{{}};" for name in along.values())
    yield CELLS
    yield "    (void)x;"
    for node in nodes(*roots(left)):
        if isinstance(node, Access):
            place = update.inputs.get((node.field, node.level, node.offset[0]))
            if place is not None:
                highest[place] = max(highest.get(place, 0), node.offset[1])
                lies[place] = node.field
    unit = update.names.row_unit
    for place, row in highest.items():
        beyond = (-(-row // unit) + 1) * unit
        at, stride = update.names.at(lies[place]), update.names.stride(lies[place])
        yield f"    __builtin_prefetch({place} + {at} + {beyond} * {stride});"
    yield from (f"    {line}" for line in update.body(known=along, cut=True))
    yield "  };"
    yield "  for (int64_t x = c.x0; x < c.x1; x += kAcross) {"
    for profile, name in along.items():
        yield f"    {name} = {update.statements.profile(profile)};"
    yield "    auto rows = [&](auto edge) __attribute__((always_inline)) {"
    yield "      for (int64_t y = c.y0; y < c.y1; y += kFold) {"
    yield "        const int64_t row = y * stride;"
    yield from (f"    {line}" for line in update.statements.row_settings(left))
    yield "        cells(row + x * kFold, x, edge);"
    yield "      }"
    yield "    };"
    edge = "x < head || x >= tail"
    if update.names.ragged:
        edge = "c.y0 < kLowY || c.y1 > s.rows - kHighY || x < begin || x >= tail"
    yield f"    {edge} ? rows(std::true_type{{}}) : rows(std::false_type{{}});"
    yield "  }"


def blocked(update: Update) -> Iterator[str]:
    """Rows of blocks of kBlock vectors, and of single ones at the end of a row."""
    names, statements, vectors = update.names, update.statements, update.vectors
    made = block(
        roots(update.work),
        statements.row,
        lambda profile: statements.profile(profile, " + n * kLanes"),
    )
    before, inside = spelled(made, update.inputs, names.stored)
    weights = [
        f"u.{names.uniform[weight]}" if weight in names.uniform else names.scalar(weight)
        for weight in made.weights
    ]
    yield f"  constexpr int kBlock = kRegisters == 32 ? {vectors} : {vectors // 2};"
    yield f"  const {names.real} given[] = {{{', '.join(weights)}}};"
    yield f"  const {names.real}* w = given;"
    yield '  asm volatile("" : "+r"(w) : : "memory");  // numbers are broadcast from memory'
    yield from (f"  {line}" for line in before)
    yield "  auto cells = [&](int64_t i, int64_t x, auto wide) __attribute__((always_inline)) {"
    yield "    constexpr int kWide = wide.value;"
    yield from (f"    {line}" for line in inside)
    if not update.ends:
        yield "    if (x < head || x + kWide * kLanes > tail) {"
        for (plane, assignment), result in zip(update.work, made.results, strict=True):
            place = "i + n * kLanes"
            kept = statements.kept(assignment.field, update.inputs, plane, place)
            chosen = f"within(x + n * kLanes, first, last) ? v{result}[n] : {kept}"
            yield f"      OG_VECTORS v{result}[n] = {chosen};"
        yield "    }"
    for (plane, assignment), result in zip(update.work, made.results, strict=True):
        to = f"{names.fields[assignment.field]}_out{plane} + i + n * kLanes"
        yield f"    OG_VECTORS store({to}, v{result}[n]);"
    yield "  };"
    yield from _each_row(update)
    last = "tail" if update.ends else "c.x1"
    if update.ends:
        yield update.ends[0]
    yield f"    for (; x + (kBlock - 1) * kLanes < {last}; x += kBlock * kLanes) {{"
    yield "      cells(row + x, x, std::integral_constant<int, kBlock>{});"
    yield "    }"
    yield f"    for (; x < {last}; x += kLanes) {{"
    yield "      cells(row + x, x, std::integral_constant<int, 1>{});"
    yield "    }"
    if update.ends:
        yield update.ends[1]
    yield "  }"


def rolled(update: Update) -> Iterator[str]:
    """Rows of vectors that share values: r0[kReach] belongs to the current vector."""
    count = len(update.ahead)
    yield f"  V r[{count}][2 * kReach + 1];"
    yield "  auto ahead = [&](int64_t next) __attribute__((always_inline)) {"
    values: dict[Expression, str] = {}
    for number in range(count):
        yield from (f"    {line}" for line in update.value_ahead(number, values))
    yield "  };"
    yield "  auto roll = [&]() __attribute__((always_inline)) {"
    yield f"    for (int n = 0; n < {count}; ++n) {{"
    yield "      for (int v = 0; v < 2 * kReach; ++v) r[n][v] = r[n][v + 1];"
    yield "    }"
    yield "  };"
    yield CELLS
    yield "    const int64_t next = i + kReach * kLanes;"
    yield "    (void)x;"
    yield from (f"    {line}" for line in update.body(update.ahead))
    yield "    roll();"
    yield "  };"
    yield from _each_row(update)
    if update.ends:
        yield update.ends[0]
    yield "    for (int v = -kReach; v < kReach; ++v) {"
    yield "      ahead(row + x * kFold + v * kLanes);"
    yield "      roll();"
    yield "    }"
    if not update.ends:
        yield f"    for (; x < head; x += kAcross) {BLENDED};"
    yield f"    for (; x < tail; x += kAcross) {INSIDE};"
    yield update.ends[1] if update.ends else f"    for (; x < c.x1; x += kAcross) {BLENDED};"
    yield "  }"


def _each_row(update: Update) -> Iterator[str]:
    """The begin of the loop over rows, with what each of them needs."""
    yield "  for (int64_t y = c.y0; y < c.y1; y += kFold) {"
    yield "    const int64_t row = y * stride;"
    yield from update.statements.row_settings(update.carrying.left)
    if update.names.ragged:
        low, high = update.faces.reach(-2)
        inside = f"y >= kLowY + {low} && y + kFold <= s.rows - kHighY - {high}"
        yield f"    const bool whole = {inside};"
        yield "    const int64_t head = whole ? begin : c.x1;"
    yield "    int64_t x = c.x0;"
