"""Derivatives along one axis, by central differences for unit spacing."""

from collections.abc import Iterable
from fractions import Fraction

from outgrid.errors import DefinitionError
from outgrid.stencil.laplacian import SECOND_DERIVATIVE_WEIGHTS
from outgrid.stencil.symbol import AXES, Symbol, kind_of
from outgrid.units import suggest

__all__ = ["FIRST_DERIVATIVE_WEIGHTS", "backward", "forward", "second"]

# Weights of u[k] - u[1 - k] for k = 1, 2, ..., half-way between two cells, by order of accuracy.
# Fornberg, Generation of finite difference formulas on arbitrarily spaced grids,
# Math. Comp. 51 (1988), table 2, doi:10.1090/S0025-5718-1988-0935077-0.
FIRST_DERIVATIVE_WEIGHTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(1),),
    4: (Fraction(9, 8), Fraction(-1, 24)),
    6: (Fraction(75, 64), Fraction(-25, 384), Fraction(3, 640)),
    8: (Fraction(1225, 1024), Fraction(-245, 3072), Fraction(49, 5120), Fraction(-5, 7168)),
}


def forward(field: Symbol, axis: str, order: int = 2) -> Symbol:
    """The first derivative along `axis` half a cell on, to `order` 2, 4, 6 or 8."""
    return _half_way(field, axis, order, 0)


def backward(field: Symbol, axis: str, order: int = 2) -> Symbol:
    """The first derivative along `axis` half a cell back, to `order` 2, 4, 6 or 8."""
    return _half_way(field, axis, order, -1)


def second(field: Symbol, axis: str, order: int = 2) -> Symbol:
    """The second derivative along `axis`, to `order` 2, 4, 6 or 8."""
    weights = _weights(SECOND_DERIVATIVE_WEIGHTS, order)
    total = float(weights[0]) * field
    for k, weight in enumerate(weights[1:], start=1):
        total = total + float(weight) * (_at(field, axis, -k) + _at(field, axis, k))
    return total


def _half_way(field: Symbol, axis: str, order: int, back: int) -> Symbol:
    terms = (
        float(weight) * (_at(field, axis, back + k) - _at(field, axis, back + 1 - k))
        for k, weight in enumerate(_weights(FIRST_DERIVATIVE_WEIGHTS, order), start=1)
    )
    return _sum(terms)


def _sum(terms: Iterable[Symbol]) -> Symbol:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def _weights(table: dict[int, tuple[Fraction, ...]], order: int) -> tuple[Fraction, ...]:
    if order not in table:
        raise DefinitionError(
            f"a difference has no order {order}; orders are {', '.join(map(str, table))}"
        )
    return table[order]


def _at(field: Symbol, axis: str, distance: int) -> Symbol:
    if not isinstance(field, Symbol):  # type: ignore[redundant-expr]
        raise DefinitionError(
            f"a difference needs a field or an expression of fields, got {kind_of(field)}"
        )
    axes = AXES[-field.ndim :]
    if axis not in axes:
        raise DefinitionError(f"no axis {axis!r}{suggest(axis, axes)}; axes are {', '.join(axes)}")
    return field[tuple(distance * (axis == other) for other in axes)]
