"""Equal values written alike, so that code is generated for one of them only.

What flows through a face is the same seen from both of its cells, but a + b there is b + a here,
and (a - b) * (a - b) is (b - a) * (b - a). Such pairs have the same bits. Here both become one tree
where a and b are the same value at two places, so that parts which are equal but for a move are
found to be.
"""

from __future__ import annotations

from collections.abc import Sequence

from outgrid.stencil.expression import Access, Expression, Operation, nodes, the_one

__all__ = ["alike"]

COMMUTING = {"add": 2, "mul": 2, "fma": 2}
"""Operations of which so many operands, the first ones, may change places."""


def alike(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    """The trees with operands in an order that does not depend on the place they are seen from.

    Every value keeps its bits, but for those of a NaN.
    """
    forms, made = _Forms(), dict[Expression, Expression]()
    for node in nodes(*expressions):
        made[node] = node
        if isinstance(node, Operation):
            operands = tuple(made[operand] for operand in node.operands)
            made[node] = the_one(Operation(node.name, forms.ordered(node.name, operands)))
        forms.of(made[node])  # its operands' are known
    return tuple(made[expression] for expression in expressions)


class _Forms:
    """The form of each value, which a move does not change, and the place of its first access."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[Expression, tuple[int, tuple[int, ...] | None]] = {}
        self._differences: dict[frozenset[Expression], Expression] = {}  # met first, by operands

    def ordered(self, name: str, operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
        """The operands of an operation; of a square, and of a size, the sign is free."""
        count = COMMUTING.get(name, 0)
        if count and operands[0] is operands[1]:
            square = self._unsigned(operands[0])
            return (square, square, *operands[2:])
        if name == "abs":
            return (self._unsigned(operands[0]),)
        return (*self._in_order(operands[:count]), *operands[count:])

    def _unsigned(self, value: Expression) -> Expression:
        """The value or its opposite; of both it is the same one, if it is a difference.

        Of one value at two places the order is by place. Else the one that was met first is taken,
        since it may be needed for itself.
        """
        if not (isinstance(value, Operation) and value.name == "sub"):
            return value
        (form, _), (other, _) = map(self.of, value.operands)
        if form == other:
            return the_one(Operation("sub", self._in_order(value.operands)[::-1]))
        return self._differences[frozenset(value.operands)]

    def _in_order(self, operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
        """The two operands, the farther one last if they are one value at two places."""
        if len(operands) == 2:
            (form, place), (other, farther) = (self.of(operand) for operand in operands)
            if form == other and place is not None and farther is not None and farther < place:
                return operands[::-1]
        return operands

    def of(self, node: Expression) -> tuple[int, tuple[int, ...] | None]:
        """The number of its form, and its place."""
        if node not in self._known:
            place: tuple[int, ...] | None = None
            match node:
                case Access(field, level, place):
                    key: object = (field, level)
                case Operation(name, operands):
                    parts = [self.of(operand) for operand in operands]
                    place = next((at for _, at in parts if at is not None), None)
                    key = (name, *((form, _between(place, at)) for form, at in parts))
                    if name == "sub":
                        self._differences.setdefault(frozenset(operands), node)
                case _:
                    key = node
            self._known[node] = self._numbers.setdefault(key, len(self._numbers)), place
        return self._known[node]


def _between(
    place: tuple[int, ...] | None, other: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    if place is None or other is None:
        return None
    return tuple(b - a for a, b in zip(place, other, strict=True))
