"""Rows of an update of very many operations, as two loops over parts of a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from outgrid.codegen.names import Names, passes_caches
from outgrid.codegen.statements import Inputs, Statements, Work, missing, roots
from outgrid.stencil.expression import Access, Expression
from outgrid.stencil.model import Assignment

__all__ = ["two_loops"]


def two_loops(
    names: Names,
    statements: Statements,
    work: Work,
    inputs: Inputs,
    first: tuple[Expression, ...],
) -> Iterator[str]:
    """The function that updates part of a row, away from its ends, by two loops.

    The ``first`` values are made by one and kept for the other, so the loops are simple ones.
    A field is stored when nothing reads it any more.
    """
    load = partial(statements.load, inputs)
    values: dict[Expression, str] = {}
    yield "  constexpr int64_t kPart = 8 * kLanes;"
    yield f"  alignas(V) Real kept[{len(first)}][kPart];"
    inlined = "__attribute__((always_inline))"
    yield f"  auto before = [&](int64_t i, int64_t x, int64_t n) {inlined} {{"
    yield "    (void)x;"
    yield "    fetch(i);"
    for expression in first:
        yield from (f"    {s}" for s in statements.compute(expression, values, load))
    for number, expression in enumerate(first):
        yield f"    store(kept[{number}] + n, {values[expression]});"
    yield "  };"
    yield f"  auto after = [&](int64_t i, int64_t x, int64_t n, auto past) {inlined} {{"
    yield "    (void)x;"
    values = {expression: f"kept{number}" for number, expression in enumerate(first)}
    yield from (f"    const V kept{n} = load(kept[{n}] + n);" for n in range(len(first)))
    waiting: list[tuple[int, Assignment]] = []
    for number, (plane, made) in enumerate(work):
        yield from (f"    {s}" for s in statements.compute(made.expression, values, load))
        waiting.append((plane, made))
        later = [node for e in roots(work[number + 1 :]) for node in missing(e, values)]
        read = {node.field for node in later if isinstance(node, Access)}
        for plane, done in [each for each in waiting if each[1].field not in read]:
            yield from _store(names, plane, done.field, values[done.expression])
        waiting = [each for each in waiting if each[1].field in read]
    yield "  };"
    yield f"  auto update_part = [&](int64_t row, int64_t begin, int64_t end) {inlined} {{"
    yield "    for (int64_t x = begin; x < end; x += kLanes) before(row + x, x, x - begin);"
    yield f"    auto rest = [&](auto past) {inlined} {{"
    yield "      for (int64_t x = begin; x < end; x += kLanes) {"
    yield "        after(row + x, x, x - begin, past);"
    yield "      }"
    yield "    };"
    yield "    past ? rest(std::true_type{}) : rest(std::false_type{});"
    yield "  };"


def _store(names: Names, plane: int, field: str, value: str) -> Iterator[str]:
    """Stores a field, past the caches where that is asked for and possible."""
    to = names.made(field, plane)
    stencil, apart = names.stencil, names.apart
    if passes_caches(stencil.field(field), stencil, apart):
        yield f"    if constexpr (past.value) store_past({to}, {value});"
        yield f"    else store({to}, {value});"
    else:
        yield f"    store({to}, {value});"
