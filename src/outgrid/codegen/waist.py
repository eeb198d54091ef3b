"""Where an update of very many operations is cut in two, so that few of its values wait at once.

What a lattice Boltzmann cell becomes depends on all of its populations by a few sums, and nothing
can be finished before these are known. Meanwhile the instructions that wait fill the queues of a
processor, none of those of the next cells has a place there, and what the registers do not hold
goes to the stack. In two loops, the first for those few values and the second for the rest,
operations of several vectors of cells are at hand at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from outgrid.codegen.interleave import heights, varying
from outgrid.stencil.expression import Access, Expression, Operation, is_condition

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
            and not any(map(is_condition, kept))  # a buffer holds numbers
            and min(len(first), len(second)) >= LEAST_SHARE * len(operations)
            and again <= MOST_AGAIN * len(operations)
            and len(_loads(first) & _loads(second)) >= MANY_LOADS
        ):
            found.append((len(kept), again, kept))
    return min(found, key=lambda each: each[:2])[2] if found else ()


def _kept(operations: Sequence[Operation], first: set[Operation]) -> tuple[Expression, ...]:
    """What the others need of the ``first`` operations, to which some more are added.

    One more is made first where that leaves fewer values to be kept.
    """
    users = Counter(o for node in operations if node not in first for o in _operands(node))
    for node in operations:
        operands = _operands(node)
        freed = sum(users[operand] == 1 for operand in operands)
        if node not in first and operands <= first and freed > (users[node] > 0):
            first.add(node)
            users.subtract(operands)
    kept: dict[Expression, None] = {}
    for node in operations:
        if node in first and users[node] > 0 and not kept.keys() >= _operands(node):
            kept[node] = None
    return tuple(kept)


def _operands(node: Operation) -> set[Operation]:
    """Operands that are operations and differ from cell to cell."""
    return {o for o in node.operands if isinstance(o, Operation) and not o.uniform}


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
