"""Functions that are made of the operations there are: the same values in every executor.

Each takes trees and gives one. What NumPy has by the same name has the same value, to rounding.
Gradients differentiate the trees: each branch has the derivative too where it is taken, also where
values are 0 or equal. Where there is none, at the corner of a cone, it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from outgrid.stencil.expression import Constant, Expression, operation

__all__ = ["DERIVED"]

# arctan(t) = t + t z A(z) with z = t t, for t up to tan(pi / 8), lowest power first; found by
# tools/minimax.py.
_ARCTAN = tuple(
    float.fromhex(text)
    for text in (
        "-0x1.5555555555318p-2",
        "0x1.9999999949772p-3",
        "-0x1.249249057e13ep-3",
        "0x1.c71c65cff547bp-4",
        "-0x1.745bc339c2983p-4",
        "0x1.3afc35f1844f4p-4",
        "-0x1.100534358c6cap-4",
        "0x1.d255343c57485p-5",
        "-0x1.6518dfb915bc5p-5",
        "0x1.5c524a647cdbcp-6",
    )
)

_ZERO, _HALF, _ONE, _MINUS_ONE = map(Constant, (0.0, 0.5, 1.0, -1.0))

_add, _sub, _mul, _div, _neg, _abs, _min, _max, _lt, _where = (
    partial(operation, name)
    for name in ("add", "sub", "mul", "div", "neg", "abs", "min", "max", "lt", "where")
)


def _floor(a: Expression) -> Expression:
    near = operation("round", a)
    return _where(_lt(a, near), _sub(near, _ONE), near)


def _ceil(a: Expression) -> Expression:
    return _neg(_floor(_neg(a)))


def _trunc(a: Expression) -> Expression:
    return _where(_lt(a, _ZERO), _ceil(a), _floor(a))


def _sign(a: Expression) -> Expression:
    # 0 * a is 0 of the same sign, and NaN, as a is; unlike a it has the derivative 0.
    flat = _mul(_ZERO, a)
    return _where(_lt(_ZERO, a), _ONE, _where(_lt(a, _ZERO), _MINUS_ONE, flat))


def _divided(a: Expression, b: Expression) -> tuple[Expression, Expression, Expression]:
    """The quotient rounded down, what is left, and whether that quotient is one too large.

    The quotient is rounded before, so of the number next below 3 b it is 3 as well, and nothing but
    the sign of what is left tells that. That is exact, because the product is not rounded.
    """
    quotient = _floor(_div(a, b))
    left = operation("fma", _neg(b), quotient, a)
    if isinstance(b, Constant):
        return quotient, left, _lt(_ZERO, left) if b.value < 0 else _lt(left, _ZERO)
    return quotient, left, _where_true(_lt(b, _ZERO), _lt(_ZERO, left), _lt(left, _ZERO))


def _where_true(condition: Expression, yes: Expression, no: Expression) -> Expression:
    other = operation("and", operation("not", condition), no)
    return operation("or", operation("and", condition, yes), other)


def _floor_divide(a: Expression, b: Expression) -> Expression:
    quotient, _, large = _divided(a, b)
    return _where(large, _sub(quotient, _ONE), quotient)


def _remainder(a: Expression, b: Expression) -> Expression:
    _, left, large = _divided(a, b)
    return _where(large, _add(left, b), left)


def _clip(a: Expression, low: Expression, high: Expression) -> Expression:
    return _where(_lt(a, low), low, _where(_lt(high, a), high, a))


def _ordered(a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """The larger one and the smaller one; of equal ones each, which the derivatives tell apart."""
    return _max(a, b), _min(b, a)


def _is_extreme(large: Expression) -> Expression:
    """Whether a value that is not below 0 is 0 or infinite: nothing is divided by that."""
    return operation("eq", _add(large, large), large)


def _hypot(a: Expression, b: Expression) -> Expression:
    """Scaled by the larger one, so that no square is too large or too small."""
    a, b = _abs(a), _abs(b)
    large, small = _ordered(a, b)
    ratio = _div(small, _where(_is_extreme(large), _ONE, large))
    length = _mul(large, operation("sqrt", _add(_ONE, _mul(ratio, ratio))))
    # NaN is less than nothing.
    return _where(operation("ne", a, a), a, length)


def _cosh(a: Expression) -> Expression:
    """Of exp(|a| / 2), which is finite wherever the result is."""
    root = operation("exp", _mul(_HALF, _abs(a)))
    return _add(_mul(_mul(_HALF, root), root), _div(_div(_HALF, root), root))


def _sinh(a: Expression) -> Expression:
    return _mul(operation("tanh", a), _cosh(a))


def _tan(a: Expression) -> Expression:
    return _div(operation("sin", a), operation("cos", a))


def _size(a: Expression) -> Expression:
    """The value without its sign; at 0 it rises, where the derivative of `abs` is 0."""
    return _where(_lt(a, _ZERO), _neg(a), _add(a, _ZERO))


def _arctan2(y: Expression, x: Expression) -> Expression:
    """The angle of the first eighth turn, then of the quarter, the half and the whole one."""
    up, across = _size(y), _size(x)
    large, small = _ordered(up, across)
    # Both 0 is no angle, and both infinite are as good as both 1.
    alike = operation("and", operation("eq", small, large), _is_extreme(large))
    slope = _where(operation("eq", large, _ZERO), _ZERO, _ONE)
    whole = _div(_where(alike, slope, small), _where(alike, _ONE, large))
    # arctan(t) = pi / 4 + arctan((t - 1) / (t + 1)).
    steep = _lt(Constant(math.tan(math.pi / 8)), whole)
    t = _where(steep, _div(_sub(whole, _ONE), _add(whole, _ONE)), whole)
    z = _mul(t, t)
    series: Expression = Constant(_ARCTAN[-1])
    for coefficient in reversed(_ARCTAN[:-1]):
        series = _add(_mul(series, z), Constant(coefficient))
    angle = _add(t, _mul(t, _mul(z, series)))
    angle = _where(steep, _add(Constant(math.pi / 4), angle), angle)
    angle = _where(_lt(across, up), _sub(Constant(math.pi / 2), angle), angle)
    angle = _where(_lt(x, _ZERO), _sub(Constant(math.pi), angle), angle)
    # Nothing compares with what is not a number.
    odd = operation("or", operation("ne", x, x), operation("ne", y, y))
    return _where(odd, _add(x, y), _where(_lt(y, _ZERO), _neg(angle), angle))


def _arctan(a: Expression) -> Expression:
    return _where(operation("eq", a, _ZERO), a, _arctan2(a, _ONE))


DERIVED: dict[str, Callable[..., Expression]] = {
    "floor": _floor,
    "ceil": _ceil,
    "trunc": _trunc,
    "sign": _sign,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "clip": _clip,
    "hypot": _hypot,
    "cosh": _cosh,
    "sinh": _sinh,
    "tan": _tan,
    "arctan": _arctan,
    "arctan2": _arctan2,
}
"""Functions by the names of operations."""
