"""Temporaries from a script: Runge and Kutta's method moves the bytes of one field."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError


@og.stencil
def advection(u, *, c):
    """u_t = -c u_x by the method of Runge and Kutta of the fourth order."""

    def rate(u):
        return -c * og.centered(u, "x", accuracy=4)

    k1 = og.temporary(rate(u), name="k1")
    k2 = og.temporary(rate(u + k1 / 2))
    k3 = og.temporary(rate(u + k2 / 2))
    return u + (k1 + 2 * k2 + 2 * k3 + rate(u + k3)) / 6


def problem(steps, cells=32, rows=24):
    """A wave that goes round so often that only the error in time is seen."""
    wave = {"u": "sin(2 * pi * x / nx)"}
    return og.Problem(
        advection, (rows, cells), "float64", steps, {"c": 24 / steps}, "periodic", wave
    )


def test_the_error_falls_with_the_fourth_power_of_the_step(tmp_path):
    cells = 32
    k = 2 * np.pi / cells
    speed = (8 * np.sin(k) - np.sin(2 * k)) / 6  # of the wave on this grid, times its wavelength
    exact = np.sin(k * np.arange(cells) - 24 * speed)
    errors = []
    for steps in (24, 48):
        result = og.run(problem(steps), memory="1GiB", out=tmp_path / f"{steps}.run")
        errors.append(np.abs(result["u"][0] - exact).max())
    assert 3.9 < np.log2(errors[0] / errors[1]) < 4.1


def test_nothing_of_them_is_moved_or_left(tmp_path):
    found = og.plan(
        problem(8, rows=4000), memory="1GiB", tier="direct", depth=4, out=tmp_path / "r"
    )
    one_field = 4000 * 32 * 8
    assert found.volume.read_bytes == found.volume.written_bytes == 2 * one_field
    result = og.run(problem(8), memory="1GiB", tier="direct", depth=3, out=tmp_path / "r")
    assert set(result.record.fields) == {"u"}


def test_a_step_on_arrays_leaves_the_field_alone():
    u = np.random.default_rng(1).random((12, 20))
    assert advection(u, c=0.1, boundary="periodic").shape == u.shape


def traced(function):
    return og.stencil(function).trace(2)


def test_those_that_need_none_of_each_other_share_a_stage():
    def two(u):
        a, b = og.temporary(u[0, 1]), og.temporary(u[1, 0])
        return a[0, -1] + b[0, 1]

    assert [len(stage.assignments) for stage in traced(two).stages] == [2, 1]


def test_one_that_is_read_in_one_place_alone_is_a_part_of_what_reads_it():
    def named(u):
        flow = og.temporary(u[0, 1] - u)
        return u + 0.1 * og.temporary(flow * flow) + flow

    def plain(u):
        flow = u[0, 1] - u
        return u + 0.1 * (flow * flow) + flow

    def kept(u):
        return u + og.temporary(u[0, 1] * 2, name="flow")

    def twice(u, v):
        flow = og.temporary(u[0, 1] * 2)
        return [{"u": u + flow}, {"v": v + flow}]

    once = og.stencil(name="once")(named).trace(2)
    assert [len(stage.assignments) for stage in once.stages] == [1, 1]  # flow is read twice
    assert og.stencil(name="plain")(lambda u: u + og.temporary(u[0, 1] * 2)).trace(2).stages == (
        og.stencil(name="plain")(lambda u: u + u[0, 1] * 2).trace(2).stages
    )
    assert [len(traced(rule).stages) for rule in (plain, kept, twice)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda u: (og.temporary(u, name="a"), u)[1], "'a' is never read"),
        (lambda u: og.temporary(u, name="a").previous + u, "within a step only"),
        (lambda u: og.temporary(u, name="u") + u, "'u' is taken"),
        (lambda u: og.temporary(u, name="a") + og.temporary(u, name="a"), "'a' is taken"),
    ],
)
def test_mistakes_are_told(function, words):
    with pytest.raises(DefinitionError, match=words):
        traced(function)


def test_there_is_none_outside_of_a_stencil():
    with pytest.raises(DefinitionError, match="only in the function of a stencil"):
        og.temporary(1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"initial": {"u": 0, "k1": 0}}, "'k1' takes no initial values"),
        ({"snapshots": [og.Snapshot("k1", every=2)]}, "'k1', a temporary"),
        ({"boundary": {"fields": {"k1": 1.0}}}, "without a boundary layer"),
    ],
)
def test_nothing_is_asked_of_them(given, words):
    given = {"initial": {"u": 0}} | given
    with pytest.raises(DefinitionError, match=words):
        og.Problem(advection, (24, 32), steps=2, parameters={"c": 0.1}, **given)
