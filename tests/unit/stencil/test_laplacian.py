from fractions import Fraction

import pytest
import sympy

from outgrid.definition import stencil
from outgrid.stencil import expression as ex
from outgrid.stencil.laplacian import SECOND_DERIVATIVE_WEIGHTS, laplacian


@pytest.mark.parametrize("order", SECOND_DERIVATIVE_WEIGHTS)
def test_weights_are_those_of_sympy(order: int) -> None:
    reach = order // 2
    points = [sympy.Integer(point) for point in range(-reach, reach + 1)]
    weights = sympy.finite_diff_weights(2, points, 0)[2][-1]
    expected = [Fraction(int(weight.p), int(weight.q)) for weight in weights[reach:]]
    assert [*SECOND_DERIVATIVE_WEIGHTS[order]] == expected


def traced(function, ndim: int):
    return stencil(function).trace(ndim)


def coefficient_sum(expression: ex.Expression) -> float:
    """The value for a field of ones: 0 but for rounding, since the field does not curve."""
    return float(ex.evaluate(expression, lambda leaf: getattr(leaf, "value", 1.0)))


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("order", SECOND_DERIVATIVE_WEIGHTS)
def test_radius_and_consistency(ndim: int, order: int) -> None:
    def curvature(u):
        return laplacian(u, order, spacing=0.5)

    stencil_value = traced(curvature, ndim)
    assert stencil_value.radius == (order // 2,) * ndim
    assert abs(coefficient_sum(stencil_value.assignments[0].expression)) < 1e-12


def test_equal_spacings_share_one_multiplication_per_distance() -> None:
    def curvature(u):
        return laplacian(u, order=8)

    operations = [
        node.name
        for node in ex.nodes(traced(curvature, 3).assignments[0].expression)
        if isinstance(node, ex.Operation)
    ]
    assert (operations.count("mul"), operations.count("add")) == (5, 4 * 5 + 4)


@pytest.mark.parametrize(
    "spacing", [(0.5, 2.0, 1.0), [1.0, 0.1, 0.1]], ids=["all different", "two equal"]
)
def test_spacing_per_axis(spacing) -> None:
    def curvature(u):
        return laplacian(u, 4, spacing)

    tree = traced(curvature, 3).assignments[0].expression
    for axis, width in enumerate(spacing):
        # On a parabola along one axis the fourth-order formula is exact: the value is 2.
        def parabola(leaf, axis=axis, width=width):
            if isinstance(leaf, ex.Access):
                return (leaf.offset[axis] * width) ** 2
            return leaf.value

        assert ex.evaluate(tree, parabola) == pytest.approx(2.0, rel=1e-12)


def test_spacing_may_be_a_parameter() -> None:
    def curvature(u, *, dx):
        return laplacian(u, 2, (1.0, dx, dx))

    stencil_value = traced(curvature, 3)

    def parabola(leaf):
        if isinstance(leaf, ex.Access):
            return (leaf.offset[2] * 0.25) ** 2
        return 0.25 if isinstance(leaf, ex.Parameter) else leaf.value

    assert ex.evaluate(stencil_value.assignments[0].expression, parabola) == pytest.approx(2.0)
    uniform = [
        node for node in ex.nodes(stencil_value.assignments[0].expression) if ex.is_uniform(node)
    ]
    assert any(isinstance(node, ex.Operation) and node.name == "div" for node in uniform)
