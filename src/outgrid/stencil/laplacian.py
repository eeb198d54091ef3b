"""Central differences for the sum of second derivatives."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from outgrid.errors import DefinitionError
from outgrid.stencil.symbol import AXES, Operand, Symbol, is_number, kind_of

__all__ = ["SECOND_DERIVATIVE_WEIGHTS", "laplacian"]

# Weights at distance 0, 1, 2, ... for unit spacing, by order of accuracy.
# Fornberg, Generation of finite difference formulas on arbitrarily spaced grids,
# Math. Comp. 51 (1988), table 1, doi:10.1090/S0025-5718-1988-0935077-0.
SECOND_DERIVATIVE_WEIGHTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(-2), Fraction(1)),
    4: (Fraction(-5, 2), Fraction(4, 3), Fraction(-1, 12)),
    6: (Fraction(-49, 18), Fraction(3, 2), Fraction(-3, 20), Fraction(1, 90)),
    8: (
        Fraction(-205, 72),
        Fraction(8, 5),
        Fraction(-1, 5),
        Fraction(8, 315),
        Fraction(-1, 560),
    ),
}


def laplacian(field: Symbol, order: int = 2, spacing: Operand | Sequence[Operand] = 1.0) -> Symbol:
    """The sum of the second derivatives of `field` over all axes, to `order` 2, 4, 6 or 8.

    That is a field, its previous level or any expression of fields, such as `c**3 - c`.

    `spacing` is the distance of neighbouring cells: one for all axes, or one per axis, slowest axis
    first; numbers or parameters. Axes of equal spacing share a multiplication per distance:
    c0*u + c1*((x- + x+) + (y- + y+) + (z- + z+)) + c2*(...). Weights are exact rational numbers,
    divided by the squared spacing and rounded once.
    """
    _check_field(field)
    weights = SECOND_DERIVATIVE_WEIGHTS.get(order)
    if weights is None:
        known = ", ".join(map(str, SECOND_DERIVATIVE_WEIGHTS))
        closest = min(SECOND_DERIVATIVE_WEIGHTS, key=lambda known: abs(known - order))
        raise DefinitionError(
            f"order of laplacian must be one of {known}, not {order}; the nearest is {closest}"
        )
    groups = _axes_by_spacing(field, spacing)
    if all(isinstance(width, float) for width, _ in groups):
        return _numeric(field, weights, groups)
    total: Symbol | None = None
    for width, axes in groups:
        if isinstance(width, float):
            term = _numeric(field, weights, [(width, axes)])
        else:
            term = 1.0 / (width * width) * _numeric(field, weights, [(1.0, axes)])
        total = term if total is None else total + term
    assert total is not None
    return total


def _check_field(field: object) -> None:
    if not isinstance(field, Symbol):
        raise DefinitionError(
            f"laplacian needs a field or an expression of fields, got {kind_of(field)}"
        )


def _numeric(
    field: Symbol, weights: tuple[Fraction, ...], groups: list[tuple[Any, list[int]]]
) -> Symbol:
    """The sum for spacings that are numbers: one centre term, then by distance and spacing."""
    squares = [Fraction(width) ** 2 for width, _ in groups]
    centre = sum(
        (
            weights[0] * len(axes) / square
            for square, (_, axes) in zip(squares, groups, strict=True)
        ),
        Fraction(0),
    )
    total = float(centre) * field
    for distance, weight in enumerate(weights[1:], start=1):
        for square, (_, axes) in zip(squares, groups, strict=True):
            total = total + float(weight / square) * _neighbours(field, axes, distance)
    return total


def _neighbours(field: Symbol, axes: list[int], distance: int) -> Symbol:
    total: Symbol | None = None
    for axis in axes:
        low, high = ([0] * field.ndim for _ in range(2))
        low[axis], high[axis] = -distance, distance
        pair = field[tuple(low)] + field[tuple(high)]
        total = pair if total is None else total + pair
    assert total is not None
    return total


def _axes_by_spacing(field: Symbol, spacing: Any) -> list[tuple[Any, list[int]]]:
    """Groups of axes that share a spacing, fastest axis first."""
    widths: list[Any] = [*spacing] if isinstance(spacing, list | tuple) else [spacing] * field.ndim
    if len(widths) != field.ndim:
        raise DefinitionError(
            f"laplacian got {len(widths)} spacings for {field.ndim} axes"
            f" ({', '.join(AXES[-field.ndim :])}); give 1 or {field.ndim}"
        )
    groups: dict[object, tuple[Any, list[int]]] = {}
    for axis in reversed(range(field.ndim)):
        width = widths[axis]
        if isinstance(width, Symbol):
            groups.setdefault(width.expression, (width, []))[1].append(axis)
            continue
        if not is_number(width) or not 0 < float(width) < math.inf:
            raise DefinitionError(
                f"the spacing along {AXES[axis - field.ndim]} must be a number above 0, not "
                f"{width!r}"
            )
        groups.setdefault(float(width), (float(width), []))[1].append(axis)
    return [*groups.values()]
