"""Where an update of very many operations is cut in two, so that few of its values wait at once.

What a lattice Boltzmann cell becomes depends on all of its populations by a few sums, and nothing
can be finished before these are known. A processor that takes instructions in order holds what
waits, has no place left for the next cells, and idles; what its registers do not hold goes to the
stack. In two loops, the first for those few values and the second for the rest, the operations of
several cells are at hand at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outgrid.codegen.interleave import heights, varying
from outgrid.stencil.expression import Access, Expression, Operation

LARGE = 100  # operations, from which on an update may be cut
MANY_LOADS = 16  # that both loops read: so many values would wait in registers
MOST_KEPT = 6  # values that go from the first loop to the second
LEAST_SHARE = 0.2  # of all operations in either loop
MOST_AGAIN = 0.25  # of all operations that both loops make


def waist(roots: Sequence[Expression]) -> tuple[Expression, ...]:
    """The values to be computed first; none if the update is small or has no such place.

    They are the fewest that any cut by height leaves: all operations from which the way to the end
    is long are made first. What takes one operation on loads, or on values that are kept, is made
    again, and loads are repeated.
    """
    needed = varying(roots)
    operations = [node for node in needed if isinstance(node, Operation)]
    if len(operations) < LARGE:
        return ()
    height = heights(needed)
    found: list[tuple[int, int, tuple[Expression, ...]]] = []
    for low in range(1, max(height.values()) + 1):
        kept = _kept(operations, {node for node in operations if height[node] >= low})
        first, second = _made(kept, ()), _made([r for r in roots if r not in kept], kept)
        again = len(first) + len(second) - len(operations)
        if (
            len(kept) <= MOST_KEPT
            and min(len(first), len(second)) >= LEAST_SHARE * len(operations)
            and again <= MOST_AGAIN * len(operations)
            and len(_loads(first) & _loads(second)) >= MANY_LOADS
        ):
            found.append((len(kept), again, kept))
    return min(found, key=lambda each: each[:2])[2] if found else ()


def _kept(operations: Sequence[Operation], first: set[Operation]) -> tuple[Expression, ...]:
    """What the others need of the ``first`` operations, to which some more are added."""
    crossing = _crossing(operations, first)
    for node in operations:
        if node not in first and first.issuperset(_operands(node)):
            wider = _crossing(operations, first | {node})
            if len(wider) < len(crossing):
                first, crossing = first | {node}, wider
    kept: dict[Expression, None] = {}
    for node in crossing:
        if not all(operand in kept for operand in _operands(node)):
            kept[node] = None
    return tuple(kept)


def _crossing(operations: Iterable[Operation], first: set[Operation]) -> list[Operation]:
    """Those of the first operations that others need."""
    needed = {o for node in operations if node not in first for o in _operands(node)}
    return [node for node in operations if node in first and node in needed]


def _operands(node: Operation) -> list[Operation]:
    """Operands that are operations and differ from cell to cell."""
    return [o for o in node.operands if isinstance(o, Operation) and not o.uniform]


def _loads(operations: Iterable[Operation]) -> set[Access]:
    return {o for node in operations for o in node.operands if isinstance(o, Access)}


def _made(roots: Iterable[Expression], known: Iterable[Expression]) -> set[Operation]:
    """Operations that lead from what is loaded, and from what is known, to ``roots``."""
    made, pending, known = set[Operation](), [*roots], {*known}
    while pending:
        node = pending.pop()
        if isinstance(node, Operation) and not node.uniform and node not in made | known:
            made.add(node)
            pending.extend(node.operands)
    return made
