"""Derivatives along one axis, by finite differences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from outgrid.errors import DefinitionError
from outgrid.stencil.laplacian import SECOND_DERIVATIVE_WEIGHTS
from outgrid.stencil.symbol import AXES, Operand, Symbol, is_number, kind_of, maximum, minimum
from outgrid.units import suggest

__all__ = [
    "FIRST_DERIVATIVE_WEIGHTS",
    "backward",
    "centered",
    "compatible",
    "cross",
    "derivative",
    "divergence",
    "fornberg",
    "forward",
    "half_way",
    "interpolate",
    "second",
    "upwind",
]

_SIDES = ("centered", "forward", "backward")

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
    return half_way(field, axis, _weights(FIRST_DERIVATIVE_WEIGHTS, order), 0)


def backward(field: Symbol, axis: str, order: int = 2) -> Symbol:
    """The first derivative along `axis` half a cell back, to `order` 2, 4, 6 or 8."""
    return half_way(field, axis, _weights(FIRST_DERIVATIVE_WEIGHTS, order), -1)


def second(field: Symbol, axis: str, order: int = 2) -> Symbol:
    """The second derivative along `axis`, to `order` 2, 4, 6 or 8."""
    weights = _weights(SECOND_DERIVATIVE_WEIGHTS, order)
    total = float(weights[0]) * field
    for k, weight in enumerate(weights[1:], start=1):
        total = total + float(weight) * (_at(field, axis, -k) + _at(field, axis, k))
    return total


def half_way(
    field: Symbol, axis: str, weights: Sequence[Fraction] | Sequence[float], back: int
) -> Symbol:
    """The sum of weights times ``u[k] - u[1 - k]``, half a cell on, or with ``back`` -1 back."""
    return _sum(
        float(weight) * (_at(field, axis, back + k) - _at(field, axis, back + 1 - k))
        for k, weight in enumerate(weights, start=1)
    )


def compatible(order: int) -> tuple[float, ...]:
    """Weights for `half_way` of a first difference that fits `second` of the same order.

    Applied on and back it is at no wavelength larger than the second difference: what is left of
    that damps. K. Mattsson, J. Sci. Comput. 51 (2012), doi:10.1007/s10915-011-9525-z, calls such
    operators compatible. That of `forward` is larger at short waves. So the highest difference of
    the same cells is subtracted from it, so often that both are equal at a wavelength of 2 cells:
    it is of an order less by 2.
    """
    weights = _weights(FIRST_DERIVATIVE_WEIGHTS, order)
    centre, *others = _weights(SECOND_DERIVATIVE_WEIGHTS, order)
    degree, wanted = order - 1, math.sqrt(abs(centre) + 2 * sum(map(abs, others)))
    excess = (2 * float(sum(map(abs, weights))) - wanted) / 2**degree
    return tuple(
        float(weight) + (-1) ** k * excess * math.comb(degree, order // 2 - 1 + k)
        for k, weight in enumerate(weights, start=1)
    )


def derivative(
    field: Symbol,
    axis: str,
    order: int = 1,
    accuracy: int = 2,
    *,
    side: str = "centered",
    at: float = 0,
    spacing: Operand = 1.0,
) -> Symbol:
    """A derivative of a field or an expression along an axis, with errors of ``spacing**accuracy``.

    ``order`` 0 interpolates, 1 is the slope, and so on. ``side`` "centered" reads as many cells on
    either side, "forward" the cell itself and those after it, "backward" those before. ``at`` 0.5
    or -0.5 is half a cell on or back, where staggered fields lie. ``spacing`` is the distance of
    cells: a number or a parameter.

    Weights are those of B. Fornberg, Math. Comp. 51 (1988), doi:10.1090/S0025-5718-1988-0935077-0:
    exact rational numbers, rounded once. Raises DefinitionError.
    """
    _check_derivative(order, accuracy, side, at)
    if side == "centered" and at:
        reach = (order + accuracy) // 2
        places = [*(range(1 - reach, reach + 1) if at > 0 else range(-reach, reach))]
    elif side == "centered":
        reach = (order + accuracy - 1) // 2
        places = [*range(-reach, reach + 1)]
    else:
        places = [*range(order + accuracy)]
        if side == "backward":
            places = [-place for place in reversed(places)]
    weights = fornberg(order, [place - Fraction(at) for place in places])
    total = _weighted(field, axis, dict(zip(places, weights, strict=True)), at)
    if not is_number(spacing):
        for _ in range(order):
            total = total / spacing
        return total
    if not 0 < float(spacing) < math.inf:
        raise DefinitionError(f"the spacing along {axis} must be a number above 0, not {spacing!r}")
    scale = Fraction(float(spacing)) ** order
    return total if scale == 1 else total * float(1 / scale)


def centered(field: Symbol, axis: str, accuracy: int = 2, *, spacing: Operand = 1.0) -> Symbol:
    """The first derivative along ``axis``, from as many cells on either side; see `derivative`."""
    return derivative(field, axis, 1, accuracy, spacing=spacing)


def upwind(
    field: Symbol, velocity: Operand, axis: str, accuracy: int = 1, *, spacing: Operand = 1.0
) -> Symbol:
    """``velocity`` times the first derivative from the side that the flow comes from."""
    before = derivative(field, axis, 1, accuracy, side="backward", spacing=spacing)
    after = derivative(field, axis, 1, accuracy, side="forward", spacing=spacing)
    return maximum(velocity, 0.0) * before + minimum(velocity, 0.0) * after


def cross(
    field: Symbol,
    first: str,
    second: str,
    accuracy: int = 2,
    *,
    spacing: Operand | Sequence[Operand] = 1.0,
) -> Symbol:
    """The mixed second derivative along two axes, from as many cells on all sides.

    ``spacing`` is one for both axes or one for each, in their order; see `derivative`.
    """
    if first == second:
        raise DefinitionError(
            f"cross needs two different axes; along {first} alone use second(...)"
        )
    both = [*spacing] if isinstance(spacing, Sequence) else [spacing, spacing]
    if len(both) != 2:
        raise DefinitionError(f"cross got {len(both)} spacings for the axes {first} and {second}")
    slope = centered(field, first, accuracy, spacing=both[0])
    return centered(slope, second, accuracy, spacing=both[1])


def divergence(flux: Mapping[str, Symbol], order: int = 2) -> Symbol:
    """The sum of the derivatives of a flux along its axes, to ``order`` 2, 4, 6 or 8.

    ``flux`` has a value for each axis half a cell on, such as
    ``{axis: interpolate(k, axis) * forward(u, axis) for axis in "yx"}``, or is a vector.
    """
    if not isinstance(flux, Mapping) or not flux:  # type: ignore[redundant-expr]
        raise DefinitionError('a divergence needs a flux by axis, {"x": ..., "y": ...}')
    return _sum(backward(value, axis, order) for axis, value in flux.items())


def interpolate(field: Symbol, axis: str, at: float = 0.5, accuracy: int = 2) -> Symbol:
    """The value half a cell on (``at`` 0.5) or back (-0.5) along an axis; see `derivative`."""
    return derivative(field, axis, 0, accuracy, at=at)


def fornberg(order: int, places: Sequence[Fraction]) -> list[Fraction]:
    """Weights of the values at ``places`` for a derivative at 0, exact for as many powers."""
    count = len(places)
    weights = [[Fraction(0)] * count for _ in range(order + 1)]
    weights[0][0] = Fraction(1)
    product = Fraction(1)
    for n in range(1, count):
        before, product = product, Fraction(1)
        for v in range(n):
            apart = places[n] - places[v]
            product *= apart
            if v == n - 1:
                for m in range(min(n, order), -1, -1):
                    lower = m * weights[m - 1][v] if m else Fraction(0)
                    weights[m][n] = before / product * (lower - places[v] * weights[m][v])
            for m in range(min(n, order), -1, -1):
                lower = m * weights[m - 1][v] if m else Fraction(0)
                weights[m][v] = (places[n] * weights[m][v] - lower) / apart
    return weights[order]


def _check_derivative(order: int, accuracy: int, side: str, at: float) -> None:
    for name, value, least, most in (("order", order, 0, 6), ("accuracy", accuracy, 1, 12)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:  # type: ignore[redundant-expr]
            raise DefinitionError(
                f"the {name} of a derivative must be a whole number of {least} to {most}, not "
                f"{value!r}"
            )
    if side not in _SIDES:
        raise DefinitionError(
            f"the side of a derivative must be one of {', '.join(map(repr, _SIDES))}, not "
            f"{side!r}{suggest(side, _SIDES)}"
        )
    if at not in (-0.5, 0, 0.5):
        raise DefinitionError(
            "at of a derivative must be 0 (at the cell), 0.5 or -0.5 (half a cell on or back), "
            f"not {at!r}"
        )
    if side == "centered" and accuracy % 2:
        raise DefinitionError(
            f"the accuracy of a centered derivative must be even, not {accuracy}; the nearest "
            f"is {accuracy + 1}"
        )


def _weighted(field: Symbol, axis: str, weights: Mapping[int, Fraction], at: float) -> Symbol:
    """The sum, nearest cells first; cells that mirror each other share a multiplication."""
    left = {place: weight for place, weight in weights.items() if weight}
    terms: list[Symbol] = []
    for place in sorted(left, key=lambda place: (abs(place - at), -place)):
        if place not in left:
            continue
        weight = left.pop(place)
        other = round(2 * at) - place
        if left.get(other) == weight:
            terms.append(float(weight) * (_at(field, axis, place) + _at(field, axis, other)))
        elif left.get(other) == -weight:
            terms.append(float(weight) * (_at(field, axis, place) - _at(field, axis, other)))
        else:
            terms.append(float(weight) * _at(field, axis, place))
            continue
        del left[other]
    return _sum(terms)


def _sum(terms: Iterable[Symbol]) -> Symbol:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def _weights(table: dict[int, tuple[Fraction, ...]], order: int) -> tuple[Fraction, ...]:
    if order not in table:
        raise DefinitionError(
            f"the order of a difference must be one of {', '.join(map(str, table))}, not {order}"
        )
    return table[order]


def _at(field: Symbol, axis: str, distance: int) -> Symbol:
    if not isinstance(field, Symbol):  # type: ignore[redundant-expr]
        raise DefinitionError(
            f"a difference needs a field or an expression of fields, got {kind_of(field)}"
        )
    axes = AXES[-field.ndim :]
    if axis not in axes:
        raise DefinitionError(
            f"an axis must be one of {', '.join(axes)}, not {axis!r}{suggest(axis, axes)}"
        )
    return field[tuple(distance * (axis == other) for other in axes)]
