"""Faces beyond which values are given, by place and step, and Robin's condition."""

import json
import random

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (24, 13, 18), 7
BOUNDARY = {
    "z-": {"kind": "given", "value": "sin(0.3 * step) * exp(-((y - 6) / 3)**2)"},
    "z+": {"kind": "robin", "a": 0.5, "b": 1.0, "value": 0.25},
    "y-": {"kind": "robin", "b": 1.0, "value": lambda x, step: og.cos(0.2 * x - 0.1 * step)},
    "y+": {"kind": "robin", "a": 1.0, "value": 2.0},
    "x-": {"value": "where(step < 3, 1, 0.5) + 0 * x"},
    "x+": 0.5,
}


@og.stencil
def heat(u, *, k):
    """Heat of the fourth order, and how much of it there is beside each cell."""
    return {"u": u + k * og.laplacian(u, order=4), "ahead": og.sum(u[2, 0, 0] * u)}


def problem():
    values = np.random.default_rng(2).random(SHAPE)
    return Problem(heat, SHAPE, "float64", STEPS, {"k": 0.05}, BOUNDARY, {"u": values})


def options(out, **given):
    usual = {"memory": "512MiB", "threads": 1, "tier": "direct", "slab_planes": 2, "out": out}
    return RunOptions.of(**usual | given)


def robin(a, b, value, near, k):
    """What is k cells beyond a face, by the mean and the slope there."""
    slope = b / (2 * k + 1)
    return ((slope - a / 2) * near + value) / (slope + a / 2)


def by_hand(u):
    """The same with ghost cells, and the fixed layer at the high end of x."""
    nz, ny, nx = SHAPE
    y, x = np.arange(ny)[:, None], np.arange(nx)
    found = []
    for step in range(STEPS):
        wide = np.pad(u, 2)
        inside = slice(2, -2)
        for k in range(2):
            low, high = 1 - k, k - 2
            gauss = np.exp(-(((y - 6) / 3) ** 2)) * np.ones(nx)
            wide[low, inside, inside] = np.sin(0.3 * step) * gauss
            wide[high, inside, inside] = robin(0.5, 1.0, 0.25, u[nz - 1 - k], k)
            wide[inside, low, inside] = robin(0, 1.0, np.cos(0.2 * x - 0.1 * step), u[:, k], k)
            wide[inside, high, inside] = robin(1.0, 0, 2.0, u[:, ny - 1 - k], k)
            wide[inside, inside, low] = 1.0 if step < 3 else 0.5
        around = -3 * 2.5 * u
        for axis in range(3):
            for apart, weight in ((1, 4 / 3), (2, -1 / 12)):
                for shift in (-apart, apart):
                    around = around + weight * np.roll(wide, shift, axis)[inside, inside, inside]
        found.append((wide[4:, inside, inside] * u)[..., :-2].sum())
        u = np.concatenate([(u + 0.05 * around)[..., :-2], u[..., -2:]], axis=-1)
    return u, found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("driven") / "plain"
    return pipeline.run(problem(), options(out, scheme="plain", tier="memory"))


def test_it_is_what_ghost_cells_would_have(plain):
    posed = problem()
    begin = np.array(posed.initial["u"].array)
    begin[..., -2:] = 0.5
    wanted, found = by_hand(begin)
    assert np.abs(run_reference(posed)["u"] - wanted).max() < 1e-14
    assert np.abs(plain["u"] - wanted).max() < 1e-14
    assert np.allclose(plain.reductions["ahead"], found, rtol=1e-13)
    assert Problem.from_dict(json.loads(json.dumps(posed.to_dict()))) == posed
    assert posed.replace(steps=9).boundary == posed.boundary


WAYS = {
    "deep": {"depth": 3, "threads": 2},
    "strips": {"depth": 2, "strip_rows": 5},
    "halos": {"depth": 2, "exchange": "halos", "ranks": 2},
    "seams": {"depth": 2, "exchange": "seams", "ranks": 2},
    "rows": {"depth": 2, "row_cuts": [6], "ranks": 2},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_setting_changes_a_bit(way, plain, tmp_path):
    given = dict(way)
    count, posed = given.pop("ranks", 1), problem()
    chosen = options(tmp_path / "run", **given)
    results = in_threads(
        lambda comm: pipeline.run(posed, chosen, comm=comm), count, random.Random(count)
    )
    assert np.asarray(results[0]["u"]).tobytes() == plain["u"].tobytes()
    assert results[0].reductions["ahead"].tobytes() == plain.reductions["ahead"].tobytes()


def test_a_wall_that_loses_heat_comes_to_the_profile_of_the_book():
    """A wall at 0 beyond one face, and an outflow of 2 (1 - u) / 3 at the other: u is linear."""

    @og.stencil
    def wall(u):
        return u + 0.25 * (u[0, -1] + u[0, 1] - 2 * u)

    n = 12
    ends = {
        "x-": {"kind": "given", "value": 0.0},
        "x+": {"kind": "robin", "a": 2.0, "b": 3.0, "value": 2.0},
    }
    posed = Problem(
        wall, (3, n), steps=4000, boundary={"kind": "neumann", **ends}, initial={"u": 0.0}
    )
    slope = 2.0 / (2.0 * (n + 0.5) + 3.0)
    assert np.abs(run_reference(posed)["u"] - slope * np.arange(1, n + 1)).max() < 1e-12


def test_later_levels_and_temporaries_have_the_value_of_their_time():
    """Beyond the face u is the number of steps made; what a step has left is one more."""

    @og.stencil
    def seen(u, v, w):
        half = og.temporary(0 * u, name="half")
        other = og.temporary(0 * u)
        before = v.previous[0, -1] - v[0, -1]
        return [
            {"u": u[0, -1], "v": before},
            {"w": 100 * u[0, -1] + 10 * half[0, -1] + other[0, -1]},
        ]

    count = {"kind": "given", "value": "step"}
    fields = {"half": {"kind": "neumann", "x-": {"kind": "given", "value": "step + 0.5"}}}
    posed = Problem(
        seen, (3, 5), steps=4, boundary={"kind": "neumann", "x-": count, "fields": fields},
        initial={"u": 0.0, "v": 0.0, "w": 0.0},
    )  # fmt: skip
    made = run_reference(posed)
    assert (made["u"][0, 0], made["v"][0, 0]) == (3, -1)
    assert made["w"][0, 0] == 100 * 4 + 10 * 3.5


def test_gradients_go_through(tmp_path):
    @og.stencil
    def flow(u, c):
        return u + c * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u) * (1 + u / 4)

    driven = {"kind": "robin", "a": 0.5, "b": 1.0, "value": "0.3 * step"}
    faces = {"x-": driven, "y-": {"value": "x / 5"}, "x+": driven, "y+": driven}
    rng = np.random.default_rng(1)
    u, weights = rng.random((6, 7)), rng.random((6, 7))
    posed = Problem(
        flow,
        u.shape,
        steps=3,
        boundary={"kind": "neumann", **faces},
        initial={"u": u, "c": 0.1},
    )
    found = og.gradient(
        posed,
        og.Cotangents(final={"u": weights}),
        wrt=["u"],
        memory="512MiB",
        threads=1,
        out=tmp_path / "g",
    )
    for cell in [(0, 0), (5, 6), (3, 2)]:
        apart = []
        for sign in (-1, 1):
            moved = u.copy()
            moved[cell] += sign * 1e-5
            apart.append(
                (run_reference(posed.replace(initial={"u": moved, "c": 0.1}))["u"] * weights).sum()
            )
        assert np.isclose(found["u"][cell], (apart[1] - apart[0]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("boundary", "words"),
    [
        ({"x-": {"kind": "dirichlet", "value": "step"}}, 'use kind "given"'),
        ({"x-": {"kind": "given", "value": "q + 1"}}, "unknown name 'q'"),
        (
            {"x-": {"value": "2 * random(3)"}},
            "'2 \\* random.3.' uses random.*files, outgrid.Series",
        ),
        (
            {"x-": {"value": lambda y: y * og.random(3)}},
            "random can be called only.*that of a face",
        ),
        ({"x-": {"kind": "given", "value": lambda q: q}}, "depend on z, y, x, step, not on q"),
        (
            {"x-": {"kind": "robin", "value": 1.0}},
            "a = 0 and b = 0 does not define",
        ),
        ({"x-": {"kind": "robin", "a": 2.0, "b": -1.0}}, "a = 2 and b = -1"),
        ({"x-": {"kind": "neumann", "value": "step"}}, "does not use value = 'step'"),
    ],
)
def test_mistakes_are_told(boundary, words):
    with pytest.raises(DefinitionError, match=words):
        problem().replace(boundary=boundary)
