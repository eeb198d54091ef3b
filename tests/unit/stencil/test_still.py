"""Stencils that rest: where all is +0 they leave +0, whatever finite numbers coefficients are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outgrid as og
from outgrid.stencil.expression import evaluate
from outgrid.stencil.problem import Problem
from outgrid.stencil.still import rests
from outgrid.testing.strategies import problems


def posed(rule, boundary="dirichlet", **given):
    """A problem of a rule for u, with c and k, which another field reads as well."""

    @og.stencil(name="rule")
    def stencil(u, w, c, *, k):
        return {"u": rule(u, c, k), "w": w + c * w + abs(k) * w}

    values = {"u": 0.0, "w": 0.0, "c": 1.0}
    return Problem(stencil, (9, 9, 9), "float32", 4, {"k": 0.5} | given, boundary, values)


RESTING = {
    "diffusion": lambda u, c, k: u + k * og.laplacian(u),
    "waves": lambda u, c, k: 2 * u - u.previous + c * og.laplacian(u),
    "coefficient last": lambda u, c, k: og.laplacian(u) * c + u,
    "damped": lambda u, c, k: k * (u + c * u[1, 0, 0]),
    "square": lambda u, c, k: u + c * u[0, 1, 0] ** 2,
    "divided": lambda u, c, k: u / (1.0 + k),
    "chosen": lambda u, c, k: og.where(c > 0, u, k * u),
    "smaller": lambda u, c, k: og.minimum(u, u[0, 0, 1]),
    "size": lambda u, c, k: abs(c * u[0, 0, 1]),
    "sine": lambda u, c, k: u + og.sin(u[1, 0, 0]),
}
MOVING = {
    "a source": lambda u, c, k: u + 1.0,
    "growth": lambda u, c, k: u + c,
    "-0": lambda u, c, k: -u,
    "sign of c": lambda u, c, k: c * u,
    "divided by c": lambda u, c, k: u + u[1, 0, 0] / c,
    "root of c": lambda u, c, k: u * c**0.5,
    "exponential": lambda u, c, k: og.exp(u),
    "underflow": lambda u, c, k: u + u[0, 0, 1] / (k * 1e-50),
}


@pytest.mark.parametrize("rule", RESTING.values(), ids=RESTING)
def test_rules_that_rest(rule):
    assert rests(posed(rule))


@pytest.mark.parametrize("rule", MOVING.values(), ids=MOVING)
def test_rules_that_do_not(rule):
    assert not rests(posed(rule))


def test_the_sign_of_a_parameter_counts():
    rule = lambda u, c, k: k * u  # noqa: E731
    assert rests(posed(rule, k=0.5))
    assert not rests(posed(rule, k=-0.5))
    assert rests(posed(lambda u, c, k: u + k * u, k=-0.5))


def test_an_image_may_turn_the_sign():
    neighbour = lambda u, c, k: k * u[0, 0, 1]  # noqa: E731
    assert rests(posed(neighbour, "neumann"))
    assert not rests(posed(neighbour, "odd"))
    assert rests(posed(lambda u, c, k: u + k * og.laplacian(u), "odd"))


@given(problems(), st.integers(0, 2**32 - 1))
def test_what_rests_makes_of_zero_the_same_bits(problem, seed):
    """The tree itself, evaluated with random coefficients and zeros of both signs beside a cell."""
    if not rests(problem):
        return
    rng = np.random.default_rng(seed)
    evolving = {field.name for field in problem.stencil.evolving}
    turned = "odd" in str(problem.edges) or "zero" in str(problem.edges)

    def leaf(node):
        name = type(node).__name__
        if name == "Access" and node.field in evolving:
            sides = (0.0, -0.0) if turned and any(node.offset) else (0.0,)
            return np.dtype(problem.dtype).type(rng.choice(sides))
        if name == "Constant":
            return np.dtype(problem.dtype).type(node.value)
        if name == "Parameter":
            value = 0 if node.name == "step" else problem.parameters[node.name]
            return np.dtype(problem.dtype).type(value)
        if name == "Profile":
            return rng.choice(problem.profile_values(node.name))
        return np.dtype(problem.dtype).type(rng.uniform(-3, 3))

    for assignment in problem.stencil.assignments:
        made = evaluate(assignment.expression, leaf)
        assert made == 0
        assert not np.signbit(made)
