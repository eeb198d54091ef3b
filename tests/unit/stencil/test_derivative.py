"""Derivatives by finite differences: exact for as many powers as they promise."""

from fractions import Fraction

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError
from outgrid.stencil.difference import FIRST_DERIVATIVE_WEIGHTS, compatible, fornberg
from outgrid.stencil.laplacian import SECOND_DERIVATIVE_WEIGHTS
from outgrid.stencil.symbol import FieldSymbol


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize(
    "places", [(-2, -1, 0, 1, 2), (0, 1, 2, 3, 4, 5), (-1.5, -0.5, 0.5, 1.5, 2)]
)
def test_weights_are_exact_for_as_many_powers_as_places(order, places):
    at = [Fraction(place) for place in places]
    weights = fornberg(order, at)
    for power in range(len(at)):
        found = sum(weight * place**power for weight, place in zip(weights, at, strict=True))
        assert found == (np.prod(range(1, order + 1), dtype=int) if power == order else 0)


def test_tables_hold_the_same_weights():
    for weights in SECOND_DERIVATIVE_WEIGHTS.values():
        reach = len(weights) - 1
        assert fornberg(2, [Fraction(k) for k in range(-reach, reach + 1)])[reach:] == [*weights]
    for order, weights in FIRST_DERIVATIVE_WEIGHTS.items():
        places = [Fraction(2 * k + 1, 2) for k in range(-order // 2, order // 2)]
        assert fornberg(1, places)[order // 2 :] == [*weights]


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_compatible_first_differences_square_to_no_more_than_the_second(order):
    angles = np.linspace(0, np.pi, 200)  # per cell

    def squared(weights):
        terms = (2 * w * np.sin((k - 0.5) * angles) for k, w in enumerate(weights, start=1))
        return sum(map(np.asarray, terms)) ** 2

    centre, *others = map(float, SECOND_DERIVATIVE_WEIGHTS[order])
    second = centre + sum(2 * w * np.cos(k * angles) for k, w in enumerate(others, start=1))
    assert (squared(compatible(order)) <= -second + 1e-14).all()
    plain = [float(weight) for weight in FIRST_DERIVATIVE_WEIGHTS[order]]
    assert squared(plain)[-1] > -second[-1] + 0.1 or order == 2
    for power in (1, 3, 5, 7):  # exact for an order less by 2
        moment = sum(2 * w * (k - 0.5) ** power for k, w in enumerate(compatible(order), start=1))
        assert moment == pytest.approx(float(power == 1)) or power > max(order - 3, 1)


def rule(make):
    return og.stencil(name="rule")(make)


CASES = [
    (order, accuracy, side, at)
    for order in (0, 1, 2, 3)
    for accuracy in (1, 2, 4, 6)
    for side in ("centered", "forward", "backward")
    for at in (0, 0.5, -0.5)
    if not (side == "centered" and accuracy % 2) and not (order == 0 and at == 0)
]


@pytest.mark.parametrize(("order", "accuracy", "side", "at"), CASES)
def test_polynomials_are_differed_exactly(order, accuracy, side, at):
    """Of a power below order + accuracy nothing is lost; of that power the error is known."""
    n, h = 31, 0.25
    x = np.arange(n) * h
    power = order + accuracy - 1
    u = np.broadcast_to(((x - 3.0) ** power)[:, None], (n, 3 * 8 + 1)).copy()
    made = rule(lambda u: og.derivative(u, "y", order, accuracy, side=side, at=at, spacing=h))
    reach = made.trace(2).radius[0]
    assert reach <= order + accuracy
    found = made(u)[reach : n - reach, 12]
    factor = np.prod([power - k for k in range(order)], dtype=float)
    exact = factor * (x + at * h - 3.0) ** (power - order)
    scale = np.abs(u).max() / h**order
    np.testing.assert_allclose(found, exact[reach : n - reach], atol=1e-12 * scale)


def test_a_spacing_may_be_a_parameter():
    u = np.random.default_rng(1).normal(size=(9, 9))
    one = rule(lambda u, *, h: og.derivative(u, "x", 2, spacing=h))(u, h=0.5)
    other = rule(lambda u: og.derivative(u, "x", 2, spacing=0.5))(u)
    np.testing.assert_allclose(one, other, rtol=1e-13)


def test_upwind_takes_the_side_of_the_flow():
    u = np.random.default_rng(2).normal(size=(9, 9))
    right = rule(lambda u: og.upwind(u, 2.0, "x"))(u)
    left = rule(lambda u: og.upwind(u, -2.0, "x"))(u)
    np.testing.assert_allclose(right[1:-1, 1:-1], 2 * (u[1:-1, 1:-1] - u[1:-1, :-2]))
    np.testing.assert_allclose(left[1:-1, 1:-1], -2 * (u[1:-1, 2:] - u[1:-1, 1:-1]))


def test_short_names_mean_the_same():
    traced = lambda make: rule(make).trace(2).stages  # noqa: E731
    assert traced(lambda u: og.centered(u * u, "x", 4)) == traced(
        lambda u: og.derivative(u * u, "x", 1, 4)
    )
    assert traced(lambda u: og.interpolate(u, "y", -0.5)) == traced(lambda u: 0.5 * (u + u[-1, 0]))


@pytest.mark.parametrize("accuracy", [2, 4, 6, 8])
def test_slopes_half_a_cell_on_read_no_more_cells_than_they_need(accuracy):
    u = FieldSymbol("u", 2)
    for at, same in ((0.5, og.forward), (-0.5, og.backward)):
        slope = og.derivative(u, "x", 1, accuracy, at=at)
        assert slope.expression == same(u, "x", accuracy).expression


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"axis": "w"}, "must be one of y, x, not 'w'"),
        ({"order": 7}, "the order of a derivative must be a whole number of 0 to 6, not 7"),
        ({"accuracy": 3}, "must be even, not 3; the nearest is 4"),
        ({"accuracy": 0, "side": "forward"}, "the accuracy .* not 0"),
        ({"side": "left"}, "the side .* not 'left'"),
        ({"at": 0.25}, "not 0.25"),
        ({"spacing": 0}, "spacing"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, told):
    with pytest.raises(DefinitionError, match=told):
        rule(lambda u: og.derivative(u, **({"axis": "x"} | arguments))).trace(2)
