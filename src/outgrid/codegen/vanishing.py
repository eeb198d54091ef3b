"""Expressions where some of what they read is +0: what is left of them, to the last bit.

Kernels compute with what this leaves, so each step is exact, also for zeros of both signs, for
numbers that underflow and for NaN, with rounding to the nearest. `+ 0` is no identity: it makes +0
of -0. But it may be put off, `(a + 0) + b` being `(a + b) + 0`: a sum that is not of two -0 is
never -0, as sums of floating-point numbers do not underflow. So all that a sum has of them becomes
one at its end. It does not pass a fused multiply-add, whose product may underflow to -0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import numpy as np

from outgrid.stencil.expression import (
    OPERATIONS,
    Constant,
    Expression,
    Leaf,
    Operation,
    is_condition,
    nodes,
    the_one,
)

__all__ = ["truth", "vanished"]

ZERO = Constant(0.0)


def vanished(
    roots: Iterable[Expression], vanishes: Callable[[Leaf], bool], dtype: str
) -> tuple[Expression, ...]:
    """The expressions where leaves that ``vanishes`` tells are +0, computed in ``dtype``."""
    wanted = tuple(roots)
    rest = _Rest(vanishes, dtype)
    for node in nodes(*wanted):
        if not isinstance(node, Operation):
            rest.note(node, ZERO if vanishes(node) else node)
        elif node.uniform:
            rest.note(node, node)
        elif node.name == "where":
            rest.choose(node)
        elif node.name == "add":
            rest.note(node, *rest.sum(*(rest.made[operand] for operand in node.operands)))
        elif node.name == "sub":
            rest.subtract(node)
        elif node.name in ("mul", "fma"):
            rest.multiply(node)
        else:
            rest.keep(node)
    return tuple(rest.whole(root) for root in wanted)


def truth(condition: Expression, vanishes: Callable[[Leaf], bool], dtype: str) -> bool | None:
    """What a condition is where leaves that ``vanishes`` tells are +0; None where none tell.

    Constants are rounded to ``dtype``, as kernels round them.
    """
    real = np.dtype(dtype).type
    values = dict[Expression, Any]()
    for node in nodes(condition):
        values[node] = None
        if isinstance(node, Constant):
            with np.errstate(over="ignore"):
                values[node] = real(node.value)
        elif isinstance(node, Operation):
            operands = [values[operand] for operand in node.operands]
            if is_condition(node) and None not in operands:
                values[node] = bool(OPERATIONS[node.name].function(*operands))
        elif vanishes(node):
            values[node] = real(0)
    decided = values[condition]
    return decided if isinstance(decided, bool) else None


Part = tuple[Expression, bool]
"""A value, and whether + 0 was put off."""


class _Rest:
    """What is left of nodes, operands before their operations."""

    def __init__(self, vanishes: Callable[[Leaf], bool], dtype: str) -> None:
        self.vanishes, self.dtype = vanishes, dtype
        self.made: dict[Expression, Part] = {}

    def note(self, node: Expression, left: Expression, put_off: bool = False) -> None:
        self.made[node] = left, put_off

    def whole(self, node: Expression) -> Expression:
        """What is left of a node, with nothing put off."""
        return _added(self.made[node])

    def keep(self, node: Operation) -> None:
        """The same operation on what is left of the operands."""
        operands = tuple(map(self.whole, node.operands))
        same = operands == node.operands
        self.note(node, node if same else the_one(Operation(node.name, operands)))

    def choose(self, node: Operation) -> None:
        """One of two values, where the condition is known."""
        decided = truth(self.whole(node.operands[0]), self.vanishes, self.dtype)
        if decided is None:
            self.keep(node)
        else:
            self.made[node] = self.made[node.operands[1 if decided else 2]]

    def sum(self, a: Part, b: Part) -> Part:
        """a + b."""
        for (zero, _), (other, put_off) in ((a, b), (b, a)):
            if _is_zero(zero):
                # Adding -0 changes nothing, not even a zero. To zeroes nothing is put off.
                positive = not _negative(zero)
                if _is_zero(other):
                    return (zero if positive else other), False
                return other, put_off or positive
        (left, put_off), (right, its) = a, b
        return the_one(Operation("add", (left, right))), put_off or its

    def subtract(self, node: Operation) -> None:
        """a - b: the sum with -b. A + 0 that b was put off is not put off any more."""
        (left, put_off), right = self.made[node.operands[0]], self.whole(node.operands[1])
        if _is_zero(right):
            negated = Constant(-right.value)
            self.note(node, *self.sum((left, put_off), (negated, False)))
        else:
            self.note(node, the_one(Operation("sub", (left, right))), put_off)

    def multiply(self, node: Operation) -> None:
        """a * b, or a * b + c: 0 where a constant is multiplied by 0, and c alone is left."""
        a, b, *rest = map(self.whole, node.operands)
        product = self._zero_product(a, b)
        if product is None:
            self.keep(node)
        elif rest:
            self.note(node, *self.sum((product, False), self.made[node.operands[2]]))
        else:
            self.note(node, product)

    def _zero_product(self, a: Expression, b: Expression) -> Constant | None:
        """The product of two constants, if it is 0: what is infinite in kernels has none."""
        if not (isinstance(a, Constant) and isinstance(b, Constant)):
            return None
        with np.errstate(over="ignore"):
            factors = [np.dtype(self.dtype).type(each.value) for each in (a, b)]
        if not (_is_zero(a) or _is_zero(b)) or not all(map(np.isfinite, factors)):
            return None
        return Constant(0.0 if _negative(a) == _negative(b) else -0.0)


def _added(part: Part) -> Expression:
    """A value, with the + 0 that was put off."""
    left, put_off = part
    return the_one(Operation("add", (left, ZERO))) if put_off else left


def _is_zero(node: Expression) -> TypeGuard[Constant]:
    return isinstance(node, Constant) and node.value == 0


def _negative(constant: Constant) -> bool:
    return math.copysign(1.0, constant.value) < 0
