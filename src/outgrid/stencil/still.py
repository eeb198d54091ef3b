"""Whether a grid of +0 stays +0: then planes that a wave has not reached need no updates.

Where all that evolves is +0, coefficients are any finite numbers, and parameters and profiles what
the problem says, the sign of every zero in an expression is known or it is not. A stencil *rests*
if each of its assignments is +0 then, and not -0: bit for bit what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.stencil.boundary import EVEN
from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    Profile,
    is_condition,
    nodes,
)
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.problem import Problem

__all__ = ["rests"]


class Known(msgspec.Struct, frozen=True):
    """What is known of a value in all cells and steps: whether it is 0, whether it never is.

    ``sign`` is 1 where its sign bit is clear, -1 where it is set, 0 where it may be either.
    """

    sign: int = 0
    zero: bool = False
    never_zero: bool = False


NUMBER = Known()
"""Any finite number."""
RESTING = Known(sign=1, zero=True)
"""+0."""

TURNED = EVEN.keys() - {"empty"}
"""Faces beyond which cells are read with their sign turned."""


class _Unknown(Exception):  # noqa: N818 - it ends a walk, and is no error
    """A value may be infinite or no number."""


def rests(problem: Problem) -> bool:
    """Whether all that evolves stays +0 where it is +0, if coefficients are finite."""
    rules = {rule for _, axes in problem.edges.rules for ends in axes for rule in ends}
    turned = not rules.isdisjoint(TURNED)
    beside = Known(sign=0 if turned else 1, zero=True)
    names = (*problem.stencil.parameters, "step")
    values = dict(zip(names, parameter_table(problem).T, strict=True))
    evolving = {field.name for field in problem.stencil.evolving}

    def known(numbers: NDArray[Any]) -> Known:
        return _known(numbers.astype(problem.dtype))

    def leaf(node: object) -> Known:
        match node:
            case Access(field, _, offset):
                if field not in evolving:
                    return NUMBER
                return beside if any(offset) else RESTING
            case Constant(value):
                return known(np.array([value]))
            case Parameter(name):
                return known(values[name])
            case Profile(name, _, 0):
                return known(problem.profile_values(name))
            case _:
                return NUMBER

    try:
        return all(
            _value(assignment.expression, leaf) == RESTING
            for assignment in problem.stencil.assignments
        )
    except _Unknown:
        return False


def _known(values: NDArray[Any]) -> Known:
    """What numbers have in common. Raises _Unknown where one is not finite."""
    if not np.isfinite(values).all():
        raise _Unknown
    negative = np.signbit(values)
    sign = 1 if not negative.any() else -1 if negative.all() else 0
    return Known(sign, zero=not values.any(), never_zero=bool((values != 0).all()))


def _value(expression: Expression, leaf: Callable[[object], Known]) -> Known:
    """What is known of a tree; conditions are not looked at. Raises _Unknown."""
    found: dict[Expression, Known] = {}
    for node in nodes(expression):
        if is_condition(node):
            continue
        if isinstance(node, Operation):
            operands = [found[each] for each in node.operands if not is_condition(each)]
            found[node] = _made(node, operands)
        else:
            found[node] = leaf(node)
    return found[expression]


def _made(node: Operation, of: list[Known]) -> Known:
    match node.name:
        case "add":
            return _sum(*of)
        case "sub":
            return _sum(of[0], _opposite(of[1]))
        case "mul":
            return _product(*of)
        case "fma":  # rounded once: the same zeros
            return _sum(_product(of[0], of[1]), of[2])
        case "div" if of[1].never_zero:
            return _product(*of)
        case "neg":
            return _opposite(of[0])
        case "abs":
            return Known(1, of[0].zero, of[0].never_zero)
        case "min" | "max" if of[0].zero and of[1].zero:
            return of[1]  # the second operand of equal ones
        case "min" | "max" | "where":
            return _either(*of)
        case "round" | "sqrt" if of[0].zero:
            return of[0]
        case "sin" | "tanh" if of[0].zero:
            return Known(zero=True)
        case "sin" | "cos" | "tanh" | "round":
            return NUMBER
        case "sqrt" if of[0].sign == 1:
            return of[0]
        case "exp" if of[0].zero:
            return Known(1, never_zero=True)
        case "random":
            return Known(1)
        case "pow":
            return _power(of[0], node.operands[1])
        case _:
            raise _Unknown


def _opposite(a: Known) -> Known:
    return Known(-a.sign, a.zero, a.never_zero)


def _product(a: Known, b: Known) -> Known:
    """Of two numbers, or their quotient: both may be so small that it becomes 0."""
    return Known(a.sign * b.sign, a.zero or b.zero)


def _sum(a: Known, b: Known) -> Known:
    """The sum of zeros of both signs is +0."""
    if a.zero and b.zero:
        return Known(1 if 1 in (a.sign, b.sign) else min(a.sign, b.sign, key=abs), zero=True)
    same = a.sign == b.sign
    never = (a.never_zero and b.zero) or (b.never_zero and a.zero)
    return Known(a.sign if same else 0, never_zero=never or (same and _away(a, b)))


def _away(a: Known, b: Known) -> bool:
    """Whether the sum of two numbers of one sign is never 0."""
    return a.sign != 0 and (a.never_zero or b.never_zero)


def _either(a: Known, b: Known) -> Known:
    sign = a.sign if a.sign == b.sign else 0
    return Known(sign, a.zero and b.zero, a.never_zero and b.never_zero)


def _power(base: Known, exponent: Expression) -> Known:
    """A whole power above 0."""
    if not isinstance(exponent, Constant) or exponent.value < 1 or exponent.value % 1:
        raise _Unknown
    even = exponent.value % 2 == 0
    return Known(1 if even else base.sign, base.zero)
