"""Values that the next vectors or rows need again, found so that they are computed once.

A part of an expression that appears at several offsets in x is one value seen from several cells.
It is evaluated for whole vectors of cells, one vector ahead, and each appearance is cut out of
three neighbouring vectors. A 27-point stencil written by columns thus pays for one outer column,
not for two. A large part that appears in two neighbouring rows, like what flows through a face, is
carried from row to row. Only the place of the evaluation changes: every lane is the same operation
on the same operands, so the results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from outgrid.stencil.expression import (
    OPERATIONS,
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    Profile,
    is_condition,
    nodes,
    substitute,
)

# A cut costs about one operation, so a computed part must save more, and so must a plain value:
# it saves loads that straddle two cache lines.
LEAST_FLOPS = 2
LEAST_LOADS = 3
# What is carried from row to row is stored and loaded, and computed once more for the first row.
LEAST_CARRIED = 8


class Family(msgspec.Struct, frozen=True):
    """One value, ``expression`` at offset 0, and every node that is it at some offset in x."""

    expression: Expression
    cuts: dict[Expression, int]


class Carried(msgspec.Struct, frozen=True):
    """A value that a row computes, ``made``, and that is ``used`` by the next one."""

    made: Expression
    used: Expression


def carried(roots: Iterable[Expression]) -> tuple[Carried, ...]:
    """The largest parts of ``roots`` that appear in two neighbouring rows, if they are worth it."""
    wanted = tuple(roots)
    signatures = _signatures(wanted, axis=1)
    places: dict[int, set[int]] = {}
    for identity, offset in signatures.values():
        if offset is not None:
            places.setdefault(identity, set()).add(offset)

    def taken(node: Expression, identity: int) -> bool:
        shared = _neighbours(places[identity])
        return shared and not is_condition(node) and _costs(node, LEAST_CARRIED)

    rows: dict[int, dict[int, Expression]] = {}
    for node, identity, offset in _largest(wanted, signatures, taken):
        rows.setdefault(identity, {})[offset] = node
    return tuple(
        Carried(both[max(both)], both[min(both)]) for both in rows.values() if _neighbours(both)
    )


def _neighbours(rows: Collection[int]) -> bool:
    return len(rows) == 2 and max(rows) - min(rows) == 1


def families(roots: Iterable[Expression]) -> tuple[Family, ...]:
    """The largest parts of ``roots`` that appear at two or more offsets in x."""
    wanted = tuple(roots)
    signatures = _signatures(wanted)
    places: dict[int, dict[int, Expression]] = {}
    for node, (identity, offset) in signatures.items():
        if offset is None or is_condition(node):
            continue
        if isinstance(node, Access) or _costs(node, LEAST_FLOPS):
            places.setdefault(identity, {}).setdefault(offset, node)
    places = {key: spread for key, spread in places.items() if _worth(spread)}
    by_identity: dict[int, Family] = {}
    for node, identity, offset in _largest(wanted, signatures, lambda _, key: key in places):
        spread = places[identity]
        middle = (min(spread) + max(spread)) // 2
        if identity not in by_identity:
            first = next(iter(spread))
            by_identity[identity] = Family(_moved(spread[first], middle - first), {})
        by_identity[identity].cuts[node] = offset - middle
    return _joined(wanted, by_identity.values())


def _largest(
    roots: tuple[Expression, ...],
    signatures: Mapping[Expression, tuple[int, int | None]],
    taken: Callable[[Expression, int], bool],
) -> Iterator[tuple[Expression, int, int]]:
    """The largest parts that are ``taken``, in the order of their appearance, with signatures."""
    seen: set[Expression] = set()
    pending = list(reversed(roots))
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        identity, offset = signatures[node]
        if offset is not None and taken(node, identity):
            yield node, identity, offset
        elif isinstance(node, Operation):
            pending.extend(reversed(node.operands))


def _joined(roots: tuple[Expression, ...], given: Iterable[Family]) -> tuple[Family, ...]:
    """The families, those that only wait joined where one value is made of them alone.

    Some values are computed ahead for the sake of others, but are needed in one place. What is made
    of several such can be computed ahead as well: then one value waits instead of all of them.
    """
    families = tuple(given)
    cuts = {node for family in families for node in family.cuts}
    waiting = {node for f in families if set(f.cuts.values()) == {0} for node in f.cuts}
    left: dict[Expression, None] = {}
    joined: dict[Expression, Family] = {}
    seen: set[Expression] = set()
    pending = list(reversed(roots))
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in cuts:
            left[node] = None
        elif isinstance(node, Operation):
            if not is_condition(node) and _joins(node, cuts, waiting):
                joined[node] = Family(node, {node: 0})
            else:
                pending.extend(reversed(node.operands))
    kept = (family for family in families if any(node in left for node in family.cuts))
    return (*kept, *joined.values())


def _joins(expression: Expression, cuts: set[Expression], waiting: set[Expression]) -> bool:
    """Whether all that differs from cell to cell in ``expression`` waits, and is more than one.

    Nothing below ``cuts`` is looked at.
    """
    seen: set[Expression] = set()
    for node in _below(expression, cuts):
        if node in cuts or isinstance(node, Access | Profile):
            if node not in waiting:
                return False
            seen.add(node)
    return len(seen) > 1


def _costs(expression: Expression, least: int) -> bool:
    """Whether a cell of ``expression`` takes so many operations; see `flops`."""
    made = 0
    for node in _below(expression):
        if isinstance(node, Operation) and not node.uniform:
            made += OPERATIONS[node.name].flops
            if made >= least:
                return True
    return False


def _below(expression: Expression, ends: Container[Expression] = ()) -> Iterator[Expression]:
    """The distinct nodes of an expression from its root down, nothing below those of ``ends``."""
    seen: set[Expression] = set()
    pending = [expression]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if isinstance(node, Operation) and node not in ends:
            pending.extend(node.operands)


def _worth(spread: dict[int, Expression]) -> bool:
    """Whether the appearances of one part, by offset in x, are worth cutting."""
    loaded = any(isinstance(node, Access) for node in spread.values())
    return len(spread) >= (LEAST_LOADS if loaded else 2)


def _signatures(
    roots: tuple[Expression, ...], axis: int = -1
) -> dict[Expression, tuple[int, int | None]]:
    """(identity up to a move along an axis, first access there) of all nodes; None without one."""
    numbers: dict[object, int] = {}
    signatures: dict[Expression, tuple[int, int | None]] = {}
    for node in nodes(*roots):
        offset: int | None = None
        match node:
            case Access(field, level, place):
                at = axis % len(place)
                offset = place[at]
                key: object = (field, level, *place[:at], *place[at + 1 :])
            case Operation(name, operands):
                parts = [signatures[operand] for operand in operands]
                offset = next((x for _, x in parts if x is not None), None)
                key = (
                    name,
                    *((i, None if x is None or offset is None else x - offset) for i, x in parts),
                )
            case Constant() | Parameter():
                key = node
            case Profile():
                key = node
                offset = 0  # it is bound to its place
        signatures[node] = (numbers.setdefault(key, len(numbers)), offset)
    return signatures


def _moved(expression: Expression, along: int) -> Expression:
    """The expression ``along`` cells further in x."""
    moves: dict[Expression, Expression] = {
        node: replace(node, offset=(*node.offset[:-1], node.offset[-1] + along))
        for node in nodes(expression)
        if isinstance(node, Access)
    }
    return substitute(expression, moves)
