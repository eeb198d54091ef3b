"""Offsets and differences of expressions: the same bytes as written out."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError

RANDOM = np.random.default_rng(6)


def same(one, other, **given):
    """Whether two rules have the same stages, fields and reach."""
    first, second = (og.stencil(name="rule")(rule).trace(2) for rule in (one, other))
    assert first.stages == second.stages
    assert first.radius == second.radius


def test_an_expression_is_read_at_an_offset_like_a_field():
    same(
        lambda u, c: (u * c[0, -1])[1, 2] + u,
        lambda u, c: u[1, 2] * c[1, 1] + u,
    )
    same(lambda u: (u + u.previous)[0, 1], lambda u: u[0, 1] + u.previous[0, 1])
    same(lambda u, *, k: (k * u[0, 1])[0, -1] + u, lambda u, *, k: k * u[0, 0] + u)


def test_differences_of_an_expression_are_those_of_its_values():
    cube = lambda u: u * u * u - u  # noqa: E731
    same(
        lambda u: u + og.laplacian(cube(u)),
        lambda u: (
            u
            + (
                -4.0 * cube(u)
                + 1.0 * (cube(u[0, -1]) + cube(u[0, 1]) + (cube(u[-1, 0]) + cube(u[1, 0])))
            )
        ),
    )
    same(
        lambda u, c: u + og.backward(c * og.forward(u, "x"), "x"),
        lambda u, c: u + (c * (u[0, 1] - u) - c[0, -1] * (u - u[0, -1])),
    )


def test_cahn_hilliard_in_a_line_keeps_its_mass():
    """c' = lap(c**3 - c - g lap(c)): of the fourth order, read two cells away."""

    @og.stencil
    def cahn_hilliard(c, *, g, dt):
        return c + dt * og.laplacian(c**3 - c - g * og.laplacian(c))

    assert cahn_hilliard.trace(2).radius == (2, 2)
    c = RANDOM.normal(scale=0.1, size=(16, 20))
    after = c
    for _ in range(20):
        after = cahn_hilliard(after, g=0.5, dt=0.01, boundary="periodic")
    np.testing.assert_allclose(after.sum(), c.sum(), atol=1e-12)
    assert np.abs(after - c).max() > 1e-3


def test_a_profile_does_not_move_along_its_own_axis():
    with pytest.raises(DefinitionError, match="at an offset along the same axis"):
        og.stencil(name="rule")(lambda u, *, k: (k.along("x") * u)[0, 1] + u).trace(2)
    same(
        lambda u, *, k: (k.along("x") * u)[1, 0] + u,
        lambda u, *, k: k.along("x") * u[1, 0] + u,
    )
