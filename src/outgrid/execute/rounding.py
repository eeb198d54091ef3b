"""How far a correctly rounded evaluation of an expression may lie from its exact value.

A running error analysis: every node carries, beside its value, a bound that holds for any
admissible evaluation, one that rounds each operation once to nearest or not at all (as the product
inside a fused multiply-add). docs/design/language.md derives the rules.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.stencil.expression import (
    OPERATIONS,
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    nodes,
)

__all__ = ["bounded"]

Bound = NDArray[np.float64]
Operand = tuple[Bound, Bound]
"""The size |value| of an operand as the reference computed it, and its error bound."""

# Covers the roundings made while computing the bound itself: a dozen of 2**-53 each.
_INFLATION = 1 + 2.0**-45


def bounded(
    expression: Expression,
    dtype: str,
    leaf: Callable[[Constant | Parameter | Access], tuple[Any, Any]],
) -> tuple[Any, Any]:
    """The value of the tree in `dtype`, and a float64 bound on the error of any evaluation of it.

    `leaf` gives the value of a constant, parameter or access, in `dtype`, and its bound. Where the
    value is not finite, or an evaluation might not be, the bound is infinite.
    """
    limits = np.finfo(dtype)
    unit = float(limits.eps) / 2
    underflow = 8 * float(limits.smallest_subnormal)
    values: dict[Expression, Any] = {}
    errors: dict[Expression, Any] = {}
    with np.errstate(all="ignore"):
        for node in nodes(expression):
            if not isinstance(node, Operation):
                values[node], errors[node] = leaf(node)
                continue
            value = OPERATIONS[node.name].function(*(values[each] for each in node.operands))
            size = np.abs(np.asarray(value, np.float64))
            operands = [
                (np.abs(np.asarray(values[each], np.float64)), errors[each])
                for each in node.operands
            ]
            if node.name in _EXACT:
                error = _EXACT[node.name](*operands)
            elif node.name in _ROUNDED:
                carried = _ROUNDED[node.name](*operands)
                largest = size * (1 + 2 * unit) + 2 * carried
                error = (carried + unit * largest) * _INFLATION + underflow
            else:
                raise UsageError(
                    f"bounds exist for expressions as written, not for the operation {node.name!r}"
                )
            values[node] = value
            errors[node] = np.where(np.isfinite(size) & np.isfinite(error), error, np.inf)
    return values[expression], errors[expression]


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
