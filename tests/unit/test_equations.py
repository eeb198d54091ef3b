"""Equations of SymPy as stencils."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError

sympy = pytest.importorskip("sympy")
t, x, y = sympy.symbols("t x y")
k, b = sympy.symbols("k b")
u = sympy.Function("u")(t, y, x)
c = sympy.Function("c")(y, x)
RANDOM = np.random.default_rng(4)
U, OLD, C = (RANDOM.random((9, 12)) for _ in range(3))


def moved(values, rows, columns):
    """What cells of a periodic grid read at an offset."""
    return np.roll(values, (-rows, -columns), (0, 1))


def test_diffusion_with_a_reaction_is_one_step_of_euler():
    rule = og.from_sympy(
        sympy.Eq(u.diff(t), k * (u.diff(x, 2) + u.diff(y, 2)) - u**3 + c), spacing=(0.5, 0.25)
    )
    traced = rule.trace()
    assert traced.parameters == ("dt", "k")
    assert [(field.name, field.evolving) for field in traced.fields] == [("u", True), ("c", False)]
    along_y = (moved(U, 1, 0) - 2 * U + moved(U, -1, 0)) / 0.25
    along_x = (moved(U, 0, 1) - 2 * U + moved(U, 0, -1)) / 0.0625
    wanted = U + 0.01 * (0.3 * (along_y + along_x) - U**3 + C)
    found = rule(U, C, dt=0.01, k=0.3, boundary="periodic")
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_a_damped_wave_is_solved_for_the_new_value():
    rule = og.from_sympy(
        sympy.Eq(u.diff(t, 2) + b * u.diff(t), c * u.diff(x, 2)), accuracy=4, name="damped"
    )
    assert [field.levels for field in rule.trace().fields] == [2, 1]
    one, two = moved(U, 0, 1) + moved(U, 0, -1), moved(U, 0, 2) + moved(U, 0, -2)
    bend = C * (-5 / 2 * U + 4 / 3 * one - two / 12)
    dt, damping = 0.1, 0.7
    wanted = (2 * U - OLD + dt**2 * bend + damping * dt / 2 * OLD) / (1 + damping * dt / 2)
    problem = og.Problem(
        rule, U.shape, steps=1, parameters={"dt": dt, "b": damping}, boundary="periodic",
        initial={"u": U, "u.previous": OLD, "c": C},
    )  # fmt: skip
    from outgrid.testing.reference import run_reference

    np.testing.assert_allclose(run_reference(problem)["u"], wanted, rtol=1e-12)


def test_places_times_functions_and_choices():
    source = sympy.Piecewise((sympy.sin(x) * sympy.exp(-t), u > sympy.Rational(1, 2)), (y, True))
    rule = og.from_sympy(sympy.Eq(u.diff(t), source + u.diff(x, y)), spacing=0.5)
    rows, columns = np.mgrid[0:9, 0:12] * 0.5
    cross = moved(U, 1, 1) - moved(U, 1, -1) - moved(U, -1, 1) + moved(U, -1, -1)
    wanted = U + 0.1 * (np.where(U > 0.5, np.sin(columns), rows) + cross)
    np.testing.assert_allclose(rule(U, dt=0.1, boundary="periodic"), wanted, rtol=1e-12)


def test_two_equations_are_one_stage_of_the_same_state():
    v = sympy.Function("v")(t, y, x)
    rule = og.from_sympy(sympy.Eq(u.diff(t), v), sympy.Eq(v.diff(t), -k * u))
    found = rule(U, C, dt=0.1, k=2, boundary="periodic")
    np.testing.assert_allclose(found["u"], U + 0.1 * C, rtol=1e-14)
    np.testing.assert_allclose(found["v"], C - 0.2 * U, rtol=1e-14)


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        (sympy.Eq(u, 1), "first or second time derivative"),
        (sympy.Eq(u.diff(t, 3), u), "first or second time derivative"),
        (sympy.Eq(u.diff(t) ** 2, u), "not linear in the time derivative"),
        (sympy.Eq(u.diff(t), sympy.gamma(u)), "not support gamma"),
        (sympy.Eq(u.diff(t), sympy.Function("w")(t, x)), r"w\(t, x\) depends on t"),
        (sympy.Eq(u.diff(t), sympy.Function("q")(sympy.Symbol("r"))), "not on r"),
        (sympy.Eq(c, 1), "first or second time derivative"),
        (sympy.Eq(u.diff(t), u.diff(t, x)), "remains in the equation"),
        (sympy.Eq(u.diff(t), sympy.Symbol("lambda") * u), "'lambda' cannot name"),
    ],
)
def test_what_is_no_stencil_is_refused(equation, words):
    with pytest.raises(DefinitionError, match=words):
        og.from_sympy(equation)


def test_an_equation_on_a_line_with_names_of_its_own():
    old, new = sympy.symbols("old new")
    v = sympy.Function("v")(t, x)
    rule = og.from_sympy(sympy.Eq(v.diff(t), sympy.exp(-old * x - new) * v.diff(x, 2)))
    assert rule.trace().parameters == ("dt", "new", "old")
    values, places = np.arange(7.0) ** 2, np.arange(7)
    found = rule(values, dt=0.5, old=0.1, new=0.2, boundary="periodic")
    bend = np.roll(values, 1) - 2 * values + np.roll(values, -1)
    np.testing.assert_allclose(found, values + 0.5 * np.exp(-0.1 * places - 0.2) * bend, rtol=1e-13)


def test_a_mixed_derivative_and_a_divergence():
    @og.stencil
    def rule(u, c):
        flux = {axis: og.interpolate(c, axis) * og.forward(u, axis) for axis in "yx"}
        return u + og.cross(u, "x", "y", spacing=(0.5, 2)) + 0.1 * og.divergence(flux)

    cross = moved(U, 1, 1) - moved(U, 1, -1) - moved(U, -1, 1) + moved(U, -1, -1)
    wanted = U + cross / 4
    for step in ((1, 0), (0, 1)):
        flux = (C + moved(C, *step)) / 2 * (moved(U, *step) - U)
        wanted = wanted + 0.1 * (flux - moved(flux, -step[0], -step[1]))
    np.testing.assert_allclose(rule(U, C, boundary="periodic"), wanted, rtol=1e-12)
    for wrong, words in (
        (lambda u: og.cross(u, "x", "x"), "two different axes"),
        (lambda u: og.cross(u, "x", "y", spacing=(1, 2, 3)), "3 spacings"),
        (lambda u: og.divergence(u), "flux by axis"),
    ):
        with pytest.raises(DefinitionError, match=words):
            og.stencil(wrong).trace(2)
