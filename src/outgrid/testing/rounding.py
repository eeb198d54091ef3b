"""How far a correctly rounded evaluation of an expression may lie from its exact value.

A running error analysis: every node carries, beside its value, a bound that holds for any
admissible evaluation, one that rounds each operation once to nearest or not at all (as the product
inside a fused multiply-add). docs/design/rounding.md derives the rules.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.numbers import largest_of, smallest_of, unit_of
from outgrid.stencil.dtypes import is_real
from outgrid.stencil.expression import (
    OPERATIONS,
    Expression,
    Leaf,
    Operation,
    nodes,
)

__all__ = ["bounded", "stored"]

Bound = NDArray[np.float64]
Operand = tuple[Bound, Bound]
"""The size |value| of an operand as the reference computed it, and its error bound."""

# Covers the roundings made while computing the bound itself: a dozen of 2**-53 each.
_INFLATION = 1 + 2.0**-45


def bounded(
    expression: Expression,
    dtype: str,
    leaf: Callable[[Leaf], tuple[Any, Any]],
) -> tuple[Any, Any]:
    """The value of the tree in `dtype`, and a float64 bound on the error of any evaluation of it.

    `leaf` gives the value of a leaf of the tree, in `dtype`, and its bound. Where the
    value is not finite, or an evaluation might not be, the bound is infinite.
    """
    limits = np.finfo(dtype)
    unit = float(limits.eps) / 2
    underflow = 8 * float(limits.smallest_subnormal)
    values: dict[Expression, Any] = {}
    sizes: dict[Expression, Bound] = {}
    errors: dict[Expression, Any] = {}
    with np.errstate(all="ignore"):
        for node in nodes(expression):
            if not isinstance(node, Operation):
                values[node], errors[node] = leaf(node)
                sizes[node] = np.abs(np.asarray(values[node], np.float64))
                continue
            operator = OPERATIONS[node.name]
            value = operator.function(*(values[operand] for operand in node.operands))
            size = np.abs(np.asarray(value, np.float64))
            operands = [(sizes[operand], errors[operand]) for operand in node.operands]
            if node.name == "where":
                error = _choice(*((values[operand], errors[operand]) for operand in node.operands))
            elif operator.conditions:
                error = np.maximum(*(errors[node.operands[place]] for place in (0, -1)))
            elif operator.condition and node.operands[0] is node.operands[1]:
                error = 0.0  # a value is compared with itself
            elif operator.condition:
                error = _comparison(
                    *((values[operand], errors[operand]) for operand in node.operands)
                )
            elif node.name == "random":
                error = 0.0  # of whole numbers
            elif node.name == "round":
                error = _nearest(*((values[operand], errors[operand]) for operand in node.operands))
            elif node.name in _FUNCTIONS:
                carried = _FUNCTIONS[node.name](
                    *((values[operand], errors[operand]) for operand in node.operands)
                )
                units = 2 * unit * _places(node.name, size)
                largest = size * (1 + units) + 2 * carried
                error = (carried + units * largest) * _INFLATION + underflow
            elif node.name in _EXACT:
                error = _EXACT[node.name](*operands)
            elif node.name in _ROUNDED:
                carried = _ROUNDED[node.name](*operands)
                largest = size * (1 + 2 * unit) + 2 * carried
                error = (carried + unit * largest) * _INFLATION + underflow
            else:
                raise UsageError(f"no bound is known for the operation {node.name!r}")
            values[node], sizes[node] = value, size
            errors[node] = np.where(np.isfinite(size) & np.isfinite(error), error, np.inf)
    return values[expression], errors[expression]


def stored(value: Any, bound: Any, dtype: str) -> tuple[Any, Any]:
    """A value of `bounded` and its bound as it is kept in `dtype`, which rounds once more."""
    if np.asarray(value).dtype == dtype:
        return value, bound
    if not is_real(dtype):  # it is a whole number in range
        return np.asarray(value).astype(dtype), bound
    unit, underflow = unit_of(dtype), 8 * smallest_of(dtype)
    with np.errstate(all="ignore"):
        kept = np.asarray(value).astype(dtype)
        largest = np.abs(np.asarray(value, np.float64)) * (1 + 2 * unit) + 2 * bound
        error = (bound + unit * largest) * _INFLATION + underflow
    # Where an evaluation might overflow, nothing is promised.
    sure = np.isfinite(kept) & (largest < largest_of(dtype))
    return kept, np.where(sure & np.isfinite(error), error, np.inf)


def _same(a: Operand) -> Bound:
    return a[1]


def _larger(a: Operand, b: Operand) -> Bound:
    return np.maximum(a[1], b[1])


def _sum(a: Operand, b: Operand) -> Bound:
    return a[1] + b[1]


def _product(a: Operand, b: Operand) -> Bound:
    return a[0] * b[1] + b[0] * a[1] + 3 * a[1] * b[1]


def _quotient(a: Operand, b: Operand) -> Bound:
    smallest = b[0] - 2 * b[1]
    carried = (a[1] + (a[0] + a[1]) / smallest * b[1]) / smallest
    return np.where(smallest > 0, carried, np.inf)


def _square_root(a: Operand) -> Bound:
    # Sizes have lost the sign, but the root of a negative value is NaN and its bound infinite.
    smallest = a[0] - 2 * a[1]
    carried = np.minimum(np.sqrt(a[1]), a[1] / (2 * np.sqrt(smallest)))
    carried = np.where(a[1] == 0, 0, carried)
    return np.where(smallest >= 0, carried, np.inf)


def _comparison(a: tuple[Any, Any], b: tuple[Any, Any]) -> Bound:
    """0 where all evaluations compare alike, infinite elsewhere."""
    apart = np.abs(np.asarray(a[0], np.float64) - np.asarray(b[0], np.float64))
    sure = (apart > 2 * (a[1] + b[1])) | (a[1] + b[1] == 0)
    return np.where(sure, 0.0, np.inf)


def _choice(condition: tuple[Any, Bound], a: tuple[Any, Bound], b: tuple[Any, Bound]) -> Bound:
    """The bound of what is chosen; where that is open, how far apart the two may be."""
    apart = np.abs(np.asarray(a[0], np.float64) - np.asarray(b[0], np.float64))
    either = (apart + 2 * (a[1] + b[1])) * _INFLATION
    holds = np.asarray(condition[0], np.bool_)
    return np.where(condition[1] == 0, np.where(holds, a[1], b[1]), either)


def _nearest(a: tuple[Any, Bound]) -> Bound:
    """0 where all evaluations have one nearest whole number; else it may be one further."""
    value = np.asarray(a[0], np.float64)
    apart = np.abs(value - np.floor(value) - 0.5)
    sure = (apart > 2 * a[1]) | (a[1] == 0)
    return np.where(sure, 0.0, 2 * a[1] + 1)


def _exponential(a: tuple[Any, Any]) -> Bound:
    # |exp(a') - exp(a)| <= exp(r + 2e) (exp(2e) - 1)
    value = np.asarray(a[0], np.float64)
    return np.exp(value + 2 * a[1]) * np.expm1(2 * a[1]) * (1 + 2.0**-40)


def _logarithm(a: tuple[Any, Any]) -> Bound:
    smallest = np.asarray(a[0], np.float64) - 2 * a[1]
    return np.where(a[1] == 0, 0.0, np.where(smallest > 0, 2 * a[1] / smallest, np.inf))


def _power(a: tuple[Any, Any], b: tuple[Any, Any]) -> Bound:
    # a**b is exp(b log a) for a > 0; a whole b that is exact gives the same size for -a.
    base, exponent = (np.asarray(operand, np.float64) for operand in (a[0], b[0]))
    logarithm, carried = np.abs(np.log(np.abs(base))), _logarithm((np.abs(base), a[1]))
    error = np.abs(exponent) * carried + logarithm * b[1] + 3 * carried * b[1]
    sure = (base > 0) | (b[1] == 0)
    moved = np.where(sure, _exponential((exponent * np.log(np.abs(base)), error)), np.inf)
    return np.where((a[1] == 0) & (b[1] == 0), 0.0, moved)


def _fused(a: tuple[Any, Any], b: tuple[Any, Any], c: tuple[Any, Any]) -> Bound:
    one, other = ((np.abs(np.asarray(value, np.float64)), error) for value, error in (a, b))
    return _product(one, other) + c[1]


def _gentle(a: tuple[Any, Any]) -> Bound:
    # Slopes of sin, cos and tanh are at most 1.
    return a[1]


def _places(name: str, size: Bound) -> Any:
    """How many units in the last place an evaluation of the function may be off."""
    # A logarithm that is off in its last place is so many times further off after exp.
    if name == "pow":
        return _ULPS + np.where(size > 0, np.abs(np.log(size)), 0) / 4
    return 1 if name == "fma" else _ULPS


# Errors of NumPy's functions are below 4 units in the last place, those of kernels below 3, a unit
# in the last place being at most twice the unit roundoff of the value.
_ULPS = 4
_FUNCTIONS: dict[str, Callable[..., Bound]] = {
    "exp": _exponential,
    "log": _logarithm,
    "sin": _gentle,
    "cos": _gentle,
    "tanh": _gentle,
    "pow": _power,
    "fma": _fused,
}
_EXACT: dict[str, Callable[..., Bound]] = {
    "neg": _same,
    "abs": _same,
    "min": _larger,
    "max": _larger,
}
_ROUNDED: dict[str, Callable[..., Bound]] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _quotient,
    "sqrt": _square_root,
}
