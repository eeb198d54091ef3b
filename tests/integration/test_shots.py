"""Gradients of several shots: their sum, cut off and gone on with, and minimised by SciPy."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize

import outgrid as og
from outgrid.errors import UsageError

SHAPE, STEPS = (14, 15), 6
GIVEN = {"memory": "1GiB", "threads": 1}


def posed(count=3, model=0.1):
    """Waves from some places, with a receiver."""
    y, x = np.indices(SHAPE)
    c = np.full(SHAPE, model)
    return [
        og.Problem(
            "wave:2",
            SHAPE,
            "float64",
            STEPS,
            initial={"u": np.exp(-((y - 5 - n) ** 2 + (x - 7) ** 2) / 4), "c": c},
            receivers=[og.Receiver("u", (9, 4.5))],
        )
        for n in range(count)
    ]


def objectives(count=3):
    rng = np.random.default_rng(1)
    return [og.LeastSquares(rng.normal(size=(STEPS, 1))) for _ in range(count)]


def single(tmp_path, wrt=("c",)):
    return [
        og.gradient(one, objective, wrt=wrt, out=tmp_path / f"one.{n}", **GIVEN)
        for n, (one, objective) in enumerate(zip(posed(), objectives(), strict=True))
    ]


def test_shots_are_added_up_in_their_order(tmp_path):
    every = single(tmp_path)
    fired = []
    out = tmp_path / "sum"
    g = og.shots(
        posed(), objectives(), wrt="c", out=out, on_shot=fired.append, adjoint="recompute", **GIVEN
    )
    assert np.array_equal(g["c"], sum(np.asarray(one["c"]) for one in every))
    assert g.value == pytest.approx(sum(one.value for one in every), rel=1e-15)
    assert [(one.shot, one.done, one.shots) for one in fired] == [(0, 1, 3), (1, 2, 3), (2, 3, 3)]
    assert [one.value for one in fired] == [one.value for one in every]
    assert str(fired[-1]) == "3 of 3 shots"
    assert "2 of 3 shots, " in str(fired[1])
    assert sorted(path.name for path in out.iterdir()) == ["c.npy", "shots.json"]


def test_shots_that_were_cut_off_go_on_with_what_is_finished(tmp_path, cut_off):
    given = {"wrt": ["c"], "resume": True, **GIVEN}
    plain = og.shots(posed(), objectives(), out=tmp_path / "plain", **given)
    out, fired = tmp_path / "sum", []
    given |= {"out": out, "on_shot": fired.append}
    for advances in (2, 3, 2, 3):
        cut_off(advances, lambda: og.shots(posed(), objectives(), **given))
    for left in (1, 0):  # the second time nothing is fired
        fired.clear()
        g = og.shots(posed(), objectives(), **given)
        assert np.asarray(g["c"]).tobytes() == np.asarray(plain["c"]).tobytes()
        assert g.value == plain.value
        assert len(fired) == 3 * left
    with pytest.raises(UsageError, match="belong to other problems, objectives or wrt"):
        og.shots(posed(model=0.2), objectives(), **given)
    with pytest.raises(UsageError, match="belong to other problems, objectives or wrt"):
        og.shots(posed(), [og.LeastSquares(np.zeros((STEPS, 1)))] * 3, **given)


def test_numbers_are_added_up_too(tmp_path):
    def heat(n):
        return og.Problem(
            "heat5", SHAPE, "float64", 3, {"k": [0.1, 0.2, 0.1]}, initial={"u": f"sin(y + {n})"}
        )

    problems, target = [heat(n) for n in range(2)], og.LeastSquares(final={"u": np.zeros(SHAPE)})
    every = [
        og.gradient(one, target, wrt=["k"], out=tmp_path / str(n), **GIVEN)
        for n, one in enumerate(problems)
    ]
    g = og.shots(problems, [target, target], wrt=["k", "u"], out=tmp_path / "sum", **GIVEN)
    assert np.array_equal(g["k"], every[0]["k"] + every[1]["k"])
    assert list(g) == ["u", "k"]


def test_a_misfit_is_minimised_and_found_again(tmp_path):
    truth = [
        og.run(one, out=tmp_path / f"data.{n}", progress=False, **GIVEN).traces
        for n, one in enumerate(posed(2, 0.12))
    ]
    seen = []
    given = {"wrt": ["c"], "out": tmp_path / "search", "on_iteration": seen.append, **GIVEN}

    def search():
        misfit = og.Misfit(posed(2), [og.LeastSquares(traces) for traces in truth], **given)
        assert np.array_equal(misfit.start, np.full(SHAPE, 0.1).ravel())
        limits = {"maxiter": 3}
        left = minimize(
            misfit,
            misfit.start,
            jac=True,
            method="L-BFGS-B",
            options=limits,
            callback=misfit.iterated,
        )
        return left, misfit.values

    first, values = search()
    assert values[-1] < values[0] / 2
    assert [one.number for one in seen] == [1, 2, 3]
    assert seen[-1].value == first.fun
    assert np.array_equal(seen[-1].model["c"], first.x.reshape(SHAPE))
    assert np.array_equal(np.load(tmp_path / "search" / "c.npy"), first.x.reshape(SHAPE))
    notes = sorted((tmp_path / "search").glob("*/shots.json"))
    assert all("value" in json.loads(path.read_text()) for path in notes)
    written = [path.stat().st_mtime_ns for path in notes]
    again, _ = search()  # of evaluations that are all there
    assert np.array_equal(again.x, first.x)
    assert [path.stat().st_mtime_ns for path in notes] == written


def test_what_does_not_fit_is_refused(tmp_path):
    given = {"out": tmp_path / "g", **GIVEN}
    with pytest.raises(UsageError, match="3 problems and 2 objectives"):
        og.shots(posed(), objectives(2), wrt=["c"], **given)
    with pytest.raises(UsageError, match="differ in shape"):
        og.shots([*posed(1), posed(1)[0].replace(steps=5)], objectives(2), wrt=["c"], **given)
    dead = og.LeastSquares(np.full((STEPS, 1), np.nan))
    with pytest.raises(UsageError, match="shot 2: observed traces hold nan"):
        og.shots(posed(), [*objectives(2), dead], wrt=["c"], **given)
    with pytest.raises(UsageError, match="is one of each shot"):
        og.shots(posed(), objectives(), wrt=["sources"], **given)
    with pytest.raises(UsageError, match="'grid' or 'shots'"):
        og.shots(posed(), objectives(), wrt=["c"], ranks="all", **given)
    with pytest.raises(UsageError, match="exists"):
        og.shots(posed(), objectives(), wrt=["c"], out=tmp_path, **GIVEN)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no shots"):
        og.shots(posed(), objectives(), wrt=["c"], out=tmp_path / "other", resume=True, **GIVEN)
    misfit = og.Misfit(posed(1), [og.Cotangents(np.zeros((STEPS, 1)))], wrt=["c"], **given)
    with pytest.raises(UsageError, match="have no value"):
        misfit(misfit.start)
    with pytest.raises(UsageError, match=r"the shape \(3,\), not \(210,\)"):
        misfit(np.zeros(3))
    with pytest.raises(UsageError, match="no field or parameter 'v'"):
        og.Misfit(posed(1), objectives(1), wrt=["v"], **given)


@og.stencil
def damped(u, c, *, loss):
    return 2 * u - u.previous + c * og.laplacian(u) - loss.along("x") * u


def test_a_misfit_by_a_profile_is_that_of_the_profile_it_is_given(tmp_path):
    sponge = {"kind": "sponge", "width": 2}
    problem = og.Problem(
        damped,
        SHAPE,
        "float64",
        STEPS,
        {"loss": "0.1 + 0.01 * x"},
        sponge,
        initial={"u": np.random.default_rng(3).normal(size=SHAPE), "c": 0.1},
        receivers=[og.Receiver("u", (9, 4.5))],
    )
    with pytest.raises(UsageError, match="no field or parameter 'sponge_y'"):
        og.Misfit([problem], objectives(1), wrt=["sponge_y"], out=tmp_path)
    misfit = og.Misfit([problem], objectives(1), wrt=["loss"], out=tmp_path, **GIVEN)
    start, far = misfit.start, 1e-5 * np.random.default_rng(4).normal(size=SHAPE[1])
    np.testing.assert_allclose(start, 0.1 + 0.01 * np.arange(SHAPE[1]))
    (_, slope), (low, _), (high, _) = (misfit(start + side * far) for side in (0, -1, 1))
    assert high - low == pytest.approx(2 * slope @ far, rel=1e-6)


@pytest.mark.parametrize("given", ["0.1 + 0.001 * x", lambda y, x: 0.1 + 0 * y])
def test_a_start_that_is_no_array_is_refused(given, tmp_path):
    (problem,) = posed(1)
    changed = problem.replace(initial={**problem.initial, "c": given})
    misfit = og.Misfit([changed], objectives(1), wrt=["c"], out=tmp_path)
    with pytest.raises(
        UsageError, match="made of numbers and arrays, and 'c' was given as neither"
    ):
        _ = misfit.start
