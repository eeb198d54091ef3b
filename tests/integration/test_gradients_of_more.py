"""Objectives of reductions and snapshots, gradients by profiles, and gradients that are cut off."""

import json
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import api
from outgrid.errors import ExecutionError, Stopped, UsageError
from outgrid.gradients import Seen
from outgrid.plan.tables import traced_bytes
from outgrid.reversal import task
from outgrid.reversal.cuts import Cuts
from outgrid.reversal.objective import check_values, said
from outgrid.testing.reference import initial_arrays, run_reference

SHAPE = (14, 13)
STEPS = 7
SOME = slice(1, -1)


@og.stencil
def damped(u, c, *, k, loss):
    """A wave that is damped along x; its energy before the step."""
    new = 2 * u - u.previous + c * og.laplacian(u) - k * loss.along("x") * u
    return {"u": new, "energy": og.sum(c * u * u + (u[0, 1] - u) ** 2)}


def posed(boundary="dirichlet", **changes):
    rng = np.random.default_rng(2)
    initial = {name: rng.uniform(0.1, 0.2, SHAPE) for name in ("u", "u.previous", "c")}
    initial["c"] = initial["c"].astype("float32")
    parameters = {"k": 0.3, "loss": rng.uniform(0.1, 0.2, SHAPE[1]).tolist()}
    given = {
        "snapshots": [og.Snapshot("u", every=2, y="2:11:2", first=3), og.Snapshot("u", x=4)],
        "receivers": [og.Receiver("u", (5.5, 6))],
        "dtypes": {"c": "float32"},
    }
    return og.Problem(
        damped, SHAPE, "float64", STEPS, parameters, boundary, initial, **(given | changes)
    )


def seen_of(problem):
    """What the reference leaves of a run."""
    states = [initial_arrays(problem)]
    run_reference(problem, seen=lambda state: states.append(dict(state)))
    frames = []
    for snapshot in problem.snapshots:
        after = range(snapshot.begin, STEPS + 1, snapshot.every)
        cells = np.ix_(*snapshot.cells(SHAPE))
        shape = snapshot.frame(SHAPE)
        frames.append([states[step]["u"][cells].reshape(shape) for step in after])
    energies = []
    for state in states[:-1]:
        u, c = state["u"], state["c"].astype(float)
        right = u[SOME, 2:]
        energies.append(float((c * u * u)[SOME, SOME].sum() + ((right - u[SOME, SOME]) ** 2).sum()))
    traces = [[(s["u"][5, 6] + s["u"][6, 6]) / 2] for s in states[1:]]
    return Seen(problem, np.array(traces), states[-1], frames, {"energy": np.array(energies)})


def check(problem, objective, g, names):
    assert g.value == pytest.approx(objective(seen_of(problem))[0], rel=1e-12)
    rng = np.random.default_rng(3)
    for name in names:
        given, far = np.asarray(g[name]), 1e-5
        direction = rng.normal(size=given.shape)
        if given.shape == SHAPE:
            direction[[0, -1]] = 0
            direction[:, [0, -1]] = 0

        def moved(side, name=name, direction=direction):
            there = side * 1e-5 * direction
            if name in problem.initial:
                changed = np.asarray(problem.initial[name]) + there
                return problem.replace(initial={**problem.initial, name: changed}, dtypes={})
            given = {**problem.parameters, "loss": problem.profile_values("loss")}
            given[name] = (np.asarray(given[name]) + there).tolist()
            return problem.replace(parameters=given)

        ahead, behind = (objective(seen_of(moved(side)))[0] for side in (1, -1))
        expected = (ahead - behind) / (2 * far)
        assert (given * direction).sum() == pytest.approx(expected, rel=1e-5), name


WRT = ["u", "u.previous", "c", "k", "loss"]


def test_snapshots_are_an_objective(tmp_path):
    problem = posed()
    rng = np.random.default_rng(4)
    wanted = [rng.normal(size=one.shape(SHAPE, STEPS)) for one in problem.snapshots]
    np.save(tmp_path / "wanted.npy", wanted[1])
    objective = og.LeastSquares(snapshots=[wanted[0], tmp_path / "wanted.npy"])
    g = og.gradient(problem, objective, wrt=WRT, out=tmp_path / "g", memory="1GiB")
    check(problem, objective, g, WRT)
    first = og.LeastSquares(snapshots=wanted[:1])
    g = og.gradient(problem, first, wrt=["c"], out=tmp_path / "h", adjoint="recompute", chunk=2)
    check(problem, first, g, ["c"])


def test_a_reduction_is_an_objective(tmp_path):
    problem = posed()
    weights = np.random.default_rng(5).normal(size=STEPS)
    objective = og.Total("energy", weights)
    g = og.gradient(problem, objective, wrt=WRT, out=tmp_path / "g", memory="1GiB", chunk=3)
    check(problem, objective, g, WRT)
    with pytest.raises(UsageError, match="no reduction 'enrgy'; did you mean 'energy'"):
        og.gradient(problem, og.Total("enrgy"), wrt=WRT, out=tmp_path / "h")
    with pytest.raises(UsageError, match="3 weights for 7 steps"):
        og.gradient(problem, og.Total("energy", [1, 2, 3]), wrt=WRT, out=tmp_path / "h")


def test_an_objective_is_any_function_of_what_is_seen(tmp_path):
    class Fourth:
        reduced = ("energy",)

        def __call__(self, seen):
            traces, energy = seen.traces, seen.reductions["energy"]
            value = float((traces**4).sum() + (energy**2).sum())
            return value, og.Cotangents(4 * traces**3, reductions={"energy": 2 * energy})

    g = og.gradient(posed(), Fourth(), wrt=["c", "loss"], out=tmp_path / "g", memory="1GiB")
    check(posed(), Fourth(), g, ["c", "loss"])


def of_snapshots(wanted, **attributes):
    """The misfit of the first snapshot, as a function of a program."""

    def misfit(seen):
        apart = np.asarray(seen.snapshots[0]) - wanted
        return 0.5 * float((apart**2).sum()), og.Cotangents(snapshots=[apart])

    misfit.__dict__.update(attributes)
    return misfit


@pytest.mark.parametrize("adjoint", ["history", "recompute"])
def test_a_function_of_snapshots_is_an_objective(adjoint, tmp_path):
    problem = posed()
    wanted = np.random.default_rng(6).normal(size=problem.snapshots[0].shape(SHAPE, STEPS))
    given = {"wrt": ["c", "u"], "adjoint": adjoint, "memory": "1GiB"}
    known = og.LeastSquares(snapshots=[wanted])
    expected = og.gradient(problem, known, out=tmp_path / "known", **given)
    for number, told in enumerate(({}, {"snapshots": [True]})):
        misfit = of_snapshots(wanted, **told)
        g = og.gradient(problem, misfit, out=tmp_path / str(number), **given)
        assert g.value == pytest.approx(expected.value)
        for name in given["wrt"]:
            np.testing.assert_allclose(g[name], expected[name], rtol=1e-12)


@pytest.mark.parametrize(
    ("bars", "attributes", "why"),
    [
        ({"snapshots": [np.zeros((3, 5, 13))]}, {"snapshots": [None]}, "by snapshot 0, which"),
        ({"snapshots": [np.zeros((2, 5, 13))]}, {}, "snapshot 0 has the shape"),
        ({"traces": np.zeros((STEPS + 1, 1))}, {}, "traces have the shape"),
        ({"reductions": {"energy": [1.0] * STEPS}}, {}, "by the reduction 'energy', which"),
    ],
)
def test_derivatives_that_do_not_fit_are_refused(bars, attributes, why, tmp_path):
    def objective(seen):
        return 0.0, og.Cotangents(**bars)

    objective.__dict__.update(attributes)
    with pytest.raises(UsageError, match=why):
        og.gradient(posed(), objective, wrt=["c"], out=tmp_path / "g", memory="1GiB")


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (np.zeros((STEPS, 1)), r"an array \(ndarray\) of shape \(7, 1\); expected og.LeastSquares"),
        (og.LeastSquares, "the objective is LeastSquares; expected og.LeastSquares"),
        (og.LeastSquares(), "has nothing to compare with"),
        (og.LeastSquares(snapshots=[None]), "has nothing to compare with"),
    ],
)
def test_what_is_no_objective_is_refused_before_any_run(objective, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        og.gradient(posed(), objective, wrt=["c"], out=tmp_path / "g", memory="1GiB")
    assert not (tmp_path / "g").exists()


def holding(value, *place, shape=(STEPS, 1)):
    """An array with that value in that place."""
    array = np.ones(shape, np.result_type(float, type(value)))
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (
            og.LeastSquares(holding(np.nan, 3, 0)),
            "observed traces hold nan .* step 4 of receiver 0",
        ),
        (
            og.LeastSquares(np.ma.masked_equal(holding(-9.0, 3, 0), -9.0)),
            r"observed traces hold a masked value \(float64\) at step 4 of receiver 0",
        ),
        (
            og.LeastSquares(holding(1j, 0, 0)),
            r"traces hold 1j \(complex128\) at step 1 of receiver 0",
        ),
        (og.Cotangents(holding(np.inf, 6, 0)), "by traces hold inf .* step 7 of receiver 0"),
        (
            og.LeastSquares(final={"u": holding(np.nan, 4, 5, shape=SHAPE)}),
            "'u' hold nan .* plane 4",
        ),
        (
            og.LeastSquares(snapshots=[holding(np.nan, 1, 0, 2, shape=(3, 5, 13))]),
            "frame 1 of snapshot 0 holds nan",
        ),
        (og.Total("energy", [1.0, np.nan, *[1.0] * 5]), "reduction 'energy' hold nan .* step 2"),
    ],
)
def test_values_that_are_no_real_numbers_are_named_before_any_run(
    objective, why, tmp_path, monkeypatch
):
    monkeypatch.setattr("outgrid.reversal.objective.TOGETHER", 2)
    with pytest.raises(UsageError, match=why):
        og.gradient(posed(), objective, wrt=["c"], out=tmp_path / "g", memory="1GiB")
    assert not (tmp_path / "g").exists()


def test_final_values_of_fixed_layers_do_not_count():
    check_values(og.LeastSquares(final={"u": holding(np.nan, 0, 5, shape=SHAPE)}), posed())


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (0.5, r"returned 0.5; it must return a value and og.Cotangents"),
        (
            (0.5, np.ones((STEPS, 1))),
            r"returned an array \(ndarray\) of shape \(7, 1\) as its deriv",
        ),
        ((1j, og.Cotangents()), "returned 1j as its value; expected one real number"),
        ((np.ones(2), og.Cotangents()), r"returned an array .* as its value"),
        ((0.5, og.Cotangents(holding(np.nan, 2, 0))), "derivatives by traces hold nan"),
    ],
)
def test_what_a_function_returns_is_told_where_it_does_not_fit(made, why):
    with pytest.raises(UsageError, match=why):
        said(lambda seen: made, Seen(posed(), np.ones((STEPS, 1)), {}, [], {}))


def test_the_value_of_a_function_may_be_a_number_of_numpy(tmp_path):
    problem = posed(snapshots=())

    def misfit(seen):
        return np.float32(0.5), og.Cotangents(np.ones((STEPS, 1)))

    g = og.gradient(problem, misfit, wrt=["c"], out=tmp_path / "g", memory="1GiB")
    assert type(g.value) is float
    assert g.value == 0.5


def test_a_gradient_goes_on_with_the_objective_that_it_began_with(tmp_path):
    problem = posed(snapshots=[og.Snapshot("u", every=2, y="2:11:2", first=3)])
    shape = problem.snapshots[0].shape(SHAPE, STEPS)
    given = {"wrt": ["c"], "out": tmp_path / "g", "memory": "1GiB", "resume": True}
    one, other = of_snapshots(np.zeros(shape)), of_snapshots(np.ones(shape))
    g = og.gradient(problem, one, **given)
    assert og.gradient(problem, of_snapshots(np.zeros(shape)), **given).value == g.value
    with pytest.raises(UsageError, match="to another objective"):
        og.gradient(problem, other, **given)


def test_a_gradient_by_a_field_draws_itself(tmp_path):
    pytest.importorskip("matplotlib")
    grid, start = og.Grid(spacing=2.0, units="m"), {"u": np.eye(*SHAPE)}
    problem = og.Problem("heat5", SHAPE, steps=1, parameters={"k": 0.1}, initial=start, grid=grid)
    target = og.LeastSquares(final={"u": np.zeros(SHAPE)})
    given = {"wrt": ["u"], "memory": "1GiB"}
    one = og.gradient(problem, target, out=tmp_path / "g", **given)
    for g in (one, og.shots([problem], [target], out=tmp_path / "sum", **given)):
        assert type(g["u"]) is type(og.run(problem, out=tmp_path / "run", resume=True)["u"])
        assert g["u"].name == "gradient by u"
        assert [(axis.name, axis.units) for axis in g["u"].axes] == [("y", "m"), ("x", "m")]
        assert g["u"].plot().axes


def test_what_users_keep_beside_a_gradient_stays(tmp_path):
    initial = {"u": np.random.default_rng(8).uniform(size=SHAPE)}
    problem = og.Problem("heat5", SHAPE, steps=1, parameters={"k": 0.1}, initial=initial)
    given = {"wrt": ["u"], "out": tmp_path / "g", "memory": "1GiB", "resume": True}
    target = og.LeastSquares(final={"u": np.zeros(SHAPE)})
    og.gradient(problem, target, **given)
    mine = [tmp_path / "g" / name for name in ("figures", "back.up", "history.1.old")]
    for folder in mine:
        folder.mkdir()
        (folder / "slope.txt").write_text("mine")
    (tmp_path / "g" / "added.by.me.npy").write_text("mine")
    og.gradient(problem, target, **given)
    assert all((folder / "slope.txt").exists() for folder in mine)
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == [
        "added.by.me.npy",
        "back.up",
        "figures",
        "gradient.json",
        "history.1.old",
        "u.npy",
    ]


def interrupted(reading):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "how", "kept"),
    [
        (None, "stopped by the end of its Slurm job", Stopped),
        (interrupted, "stopped", KeyboardInterrupt),
    ],
)
def test_a_gradient_that_is_stopped_says_how_it_goes_on_as_a_whole(
    end, how, kept, tmp_path, monkeypatch
):
    problem, out = posed(snapshots=()), tmp_path / "g"
    given = {"wrt": ["c"], "memory": "1GiB", "resume": True}
    target = og.LeastSquares(np.zeros((STEPS, 1)))
    if end is None:
        monkeypatch.setattr("outgrid.execute.stop.scheduler_seconds_left", lambda: 0.0)
    with pytest.raises(kept) as told:
        og.gradient(problem, target, out=out, on_sweep=end, **given)
    goes_on = f"og.gradient(..., out={str(out)!r}, resume=True) continues the gradient"
    assert str(told.value) == f"{how}; what is finished is kept; {goes_on}"
    with pytest.raises(kept) as told:
        og.shots([problem], [target], out=tmp_path / "sum", on_sweep=end, **given)
    assert "og.shots(" in str(told.value)
    monkeypatch.undo()
    assert og.gradient(problem, target, out=out, **given).value > 0


def test_a_value_that_is_not_finite_does_not_say_how_one_run_goes_on(tmp_path):
    problem = og.Problem(
        "heat5", SHAPE, steps=400, parameters={"k": 9.0}, initial={"u": "sin(3*x + 5*y)"}
    )
    target = og.LeastSquares(final={"u": np.zeros(SHAPE)})
    with pytest.raises(ExecutionError, match=r"inf|nan") as told:
        og.gradient(problem, target, wrt=["u"], out=tmp_path / "g", memory="1GiB", depth=4)
    assert "outgrid resume" not in str(told.value)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"stop_after": 60}, "do not support stop_after; leave it out; stop it with Ctrl-C"),
        ({"overwrite": True}, "overwrites no other one"),
    ],
)
def test_options_of_one_run_are_refused(option, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        og.gradient(posed(), og.Total("energy"), wrt=["c"], out=tmp_path / "g", **option)


def test_a_gradient_goes_on_with_another_memory(tmp_path, monkeypatch, cut_off):
    """Runs are cut as they were, where traces take a share of the memory."""
    rng = np.random.default_rng(7)
    problem = og.Problem(
        "wave:2",
        SHAPE,
        steps=9,
        initial={"u": rng.uniform(size=SHAPE), "c": 0.1},
        receivers=[og.Receiver("u", (5, 6.5))],
    )
    given = {"wrt": ["u"], "adjoint": "history", "depth": 1}
    objective = og.LeastSquares(rng.normal(size=(9, 1)))
    monkeypatch.setattr(
        task, "TRACES_SHARE", 2.1 * traced_bytes(problem.receivers) / 2**30
    )  # two steps
    whole = og.gradient(problem, objective, out=tmp_path / "whole", memory="1GiB", **given)
    for advances in (11, 14):
        out = tmp_path / str(advances)
        going = {"out": out, "resume": True, **given}
        cut_off(
            advances, lambda going=going: og.gradient(problem, objective, memory="1GiB", **going)
        )
        g = og.gradient(problem, objective, memory="2GiB", **going)
        assert np.asarray(g["u"]).tobytes() == np.asarray(whole["u"]).tobytes()


def test_a_previous_level_that_was_given_has_a_gradient_of_its_own(tmp_path):
    objective, shared = og.LeastSquares(np.ones((STEPS, 1))), {"c": 0.1}
    made = {}
    for name, initial, expected in (
        ("both", {"u": 0.25}, {"u.previous"}),
        ("apart", {"u": 0.25, "u.previous": 0.25}, set()),
    ):
        problem = og.Problem(
            "wave:2",
            SHAPE,
            steps=STEPS,
            initial={**initial, **shared},
            receivers=[og.Receiver("u", (5, 6))],
        )
        assert problem.replace(steps=STEPS).alike == problem.alike == expected
        wrt = ["u", "u.previous"] if name == "apart" else ["u"]
        made[name] = og.gradient(problem, objective, wrt=wrt, out=tmp_path / name, memory="1GiB")
    apart = made["apart"]
    np.testing.assert_allclose(
        made["both"]["u"], np.asarray(apart["u"]) + np.asarray(apart["u.previous"]), rtol=1e-13
    )
    assert np.abs(apart["u.previous"]).max() > 0


def test_a_field_may_have_any_name(tmp_path):
    """Also those of files that a gradient makes for itself."""

    @og.stencil
    def rule(u, coefficient, added, traces):
        return u + coefficient * og.laplacian(u) + 0.1 * (added - traces * u)

    names = ["coefficient", "added", "traces"]
    problem = og.Problem(
        rule,
        SHAPE,
        steps=STEPS,
        initial={"u": "sin(x / 3) * y", **dict.fromkeys(names, "0.1 + x / 1000")},
        receivers=[og.Receiver("u", (5, 6))],
    )
    given = {"wrt": names, "out": tmp_path / "g", "memory": "1GiB", "adjoint": "recompute"}
    g = og.gradient(problem, og.LeastSquares(np.ones((STEPS, 1))), **given)
    assert all(np.asarray(g[name]).any() for name in names)
    left = {path.name for path in (tmp_path / "g").iterdir()}
    assert left == {*(f"{name}.npy" for name in names), "gradient.json"}


def test_the_disk_has_one_history_at_a_time(tmp_path, monkeypatch, cut_off):
    """That of the last steps is given back when a run has gone back through it."""
    problem, spend, left = posed(), task.Task.spend, list[int]()
    objective = og.LeastSquares(
        snapshots=[None, np.zeros(posed().snapshots[1].shape(SHAPE, STEPS))]
    )
    given = {"wrt": ["c"], "memory": "1GiB", "depth": 1, "resume": True}

    def noting(self, history):
        spend(self, history)
        files = [run / "snapshot.2.npy" for run in history.runs]
        left.extend(512 * path.stat().st_blocks for path in files)

    monkeypatch.setattr(task.Task, "spend", noting)
    whole = og.gradient(problem, objective, out=tmp_path / "whole", adjoint="history", **given)
    given |= {"out": tmp_path / "g", "adjoint": "recompute"}
    advances = 1
    while len(left) < 2:  # once in a gradient
        advances += 4
        cut_off(advances, lambda: og.gradient(problem, objective, **given))
    cut_off(2, lambda: og.gradient(problem, objective, **given))
    g = og.gradient(problem, objective, **given)
    assert np.asarray(g["c"]).tobytes() == np.asarray(whole["c"]).tobytes()
    assert len(left) == 2
    assert max(left) <= 4096


def test_a_gradient_that_was_cut_off_goes_on(tmp_path, cut_off):
    problem = posed()
    objective = og.LeastSquares(np.zeros((STEPS, 1)), snapshots=[None, np.zeros((STEPS, 14))])
    given = {"wrt": WRT, "adjoint": "recompute", "chunk": 2, "memory": "1GiB", "depth": 1}
    plain = og.gradient(problem, objective, out=tmp_path / "plain", **given)
    out = tmp_path / "g"
    for advances in (3, 5, 2, 4, 1, 3, 2):
        cut_off(advances, lambda: og.gradient(problem, objective, out=out, resume=True, **given))
    with pytest.raises(UsageError, match="belongs to another problem"):
        og.gradient(problem, objective, out=out, resume=True, **{**given, "wrt": ["c"]})
    other = og.LeastSquares(np.full((STEPS, 1), 1e-3), snapshots=objective.snapshots)
    with pytest.raises(UsageError, match="to another objective"):
        og.gradient(problem, other, out=out, resume=True, **given)
    for _ in range(2):  # the second time it is done
        g = og.gradient(problem, objective, out=out, resume=True, **given)
        for name in WRT:
            assert np.asarray(g[name]).tobytes() == np.asarray(plain[name]).tobytes(), name
        assert g.value == plain.value
    left = {path.name for path in out.iterdir()}
    assert left == {"c.npy", "u.npy", "u.previous.npy", "gradient.json"}


def test_runs_begin_in_the_files_of_those_before(tmp_path, monkeypatch):
    arrays, files = dict(posed().initial), {}
    for name in arrays:
        np.save(tmp_path / f"{name}.npy", arrays[name].array)
        files[name] = str(tmp_path / f"{name}.npy")
    uncopied, run = {}, api.run

    def noting(problem, *, out, **given):
        made = run(problem, out=out, **given)
        uncopied[out.name] = set(made.record.planned["uncopied"])
        return made

    monkeypatch.setattr(api, "run", noting)
    objective = og.LeastSquares(np.zeros((STEPS, 1)), snapshots=[None, np.zeros((STEPS, 14))])
    given = {"wrt": WRT, "adjoint": "recompute", "chunk": 2, "memory": "1GiB", "tier": "direct"}
    g = og.gradient(posed().replace(initial=files), objective, out=tmp_path / "g", **given)
    assert uncopied["state.0"] == {"c"}  # no step, so the state is a copy
    forward = [found for name, found in uncopied.items() if name.startswith(("state", "history"))]
    assert all(found == {"u", "u.previous", "c"} for found in forward[1:])
    back = [found for name, found in uncopied.items() if name.startswith("back")]
    assert all("c" in found for found in back)
    assert "c_grad" in back[-1]
    plain = og.gradient(posed(), objective, out=tmp_path / "plain", **given)
    for name in WRT:
        assert np.asarray(g[name]).tobytes() == np.asarray(plain[name]).tobytes(), name


@pytest.mark.parametrize(
    "given",
    [{}, {"chunk": 2, "every": 2, "adjoint": "recompute"}, {"wrt": ["sources", "u"]}],
    ids=["history", "recompute", "linear"],
)
def test_traces_beyond_a_share_of_memory_cut_runs_and_change_no_byte(
    given, tmp_path, monkeypatch, cut_off
):
    np.save(tmp_path / "observed.npy", np.random.default_rng(4).normal(size=(STEPS, 2)))
    objective = og.LeastSquares(tmp_path / "observed.npy")
    rng = np.random.default_rng(5)
    problem = og.Problem(
        "wave:2",
        SHAPE,
        steps=STEPS,
        initial={"u": rng.uniform(size=SHAPE), "c": rng.uniform(0.1, 0.2, SHAPE)},
        sources=[og.Source("u", (6, 4.5), rng.normal(size=STEPS))],
        receivers=[og.Receiver("u", (5, 6.5)), og.Receiver("u", (3, 4))],
        snapshots=[og.Snapshot("u", x=4)] if given else [],
    )
    given = {"wrt": ["c", "u"], "memory": "1GiB", "depth": 1, "adjoint": "history", **given}
    whole = og.gradient(problem, objective, out=tmp_path / "whole", **given)
    traced = [*problem.receivers, *(problem.sources if "sources" in given["wrt"] else ())]
    monkeypatch.setattr(task, "TRACES_SHARE", 2.1 * traced_bytes(traced) / 2**30)  # two steps
    out = tmp_path / "g"
    for advances in (6, 5):
        cut_off(advances, lambda: og.gradient(problem, objective, out=out, resume=True, **given))
    g = og.gradient(problem, objective, out=out, resume=True, **given)
    assert g.value == whole.value
    for name in given["wrt"]:
        assert np.asarray(g[name]).tobytes() == np.asarray(whole[name]).tobytes(), name
    assert not [path for path in out.iterdir() if path.is_dir() or "traces" in path.name]


def test_states_that_are_not_kept_are_those_before(tmp_path):
    """In the limit of slow waves: every second state makes a gradient that is close."""
    problem = posed(snapshots=())
    slow = {name: np.full(SHAPE, 0.1) for name in ("u", "u.previous")}
    y, x = np.indices(SHAPE)
    slow["u"] = slow["u.previous"] = np.sin(y / 5.0) * np.sin(x / 5.0)
    problem = problem.replace(initial={**slow, "c": 0.01 + 0 * x}, dtypes={})
    objective = og.LeastSquares(np.zeros((STEPS, 1)))
    exact, half = (
        og.gradient(
            problem,
            objective,
            wrt=["c"],
            out=tmp_path / str(every),
            every=every,
            adjoint="history",
            memory="1GiB",
        )["c"]
        for every in (1, 2)
    )
    size = np.abs(exact).max()
    assert 0 < np.abs(half - exact).max() < 0.2 * size
    for chunk in (4, 0):
        with pytest.raises(UsageError, match=f"in chunks of {chunk} .* multiples of every"):
            og.gradient(problem, objective, wrt=["c"], out=tmp_path / "g", every=3, chunk=chunk)


def test_which_states_are_kept_does_not_depend_on_the_strategy(tmp_path, monkeypatch):
    """Step 3 is a cut, and no multiple of every."""
    rng = np.random.default_rng(5)
    problem = og.Problem(
        "wave:2",
        SHAPE,
        steps=8,
        initial={"u": "sin(x / 3) * cos(y / 4)", "c": 0.1},
        receivers=[og.Receiver("u", (8, 9))],
        snapshots=[og.Snapshot("u", every=3)],
    )
    objective = og.LeastSquares(rng.normal(size=(8, 1)), snapshots=[np.zeros((2, *SHAPE))])
    given = {"wrt": ["c"], "every": 2, "memory": "1GiB"}
    made = list[bytes]()
    for number, lengths in enumerate([(), (2,), (4,), (4, 2)]):
        monkeypatch.setattr(Cuts, "longer", lambda *_: ())
        if lengths:
            monkeypatch.setattr(Cuts, "lengths", lambda *_, lengths=lengths: lengths)
        out = tmp_path / str(number)
        adjoint = "recompute" if lengths else "history"
        g = og.gradient(problem, objective, out=out, adjoint=adjoint, **given)
        if lengths:
            assert tuple(json.loads((out / "gradient.json").read_text())["lengths"]) == lengths
        made.append(np.asarray(g["c"]).tobytes())
    assert len(set(made)) == 1


def test_derivatives_that_read_the_level_before_need_every_state(tmp_path):
    @og.stencil
    def rubbed(u, c):
        return 2 * u - u.previous + 0.1 * og.laplacian(u) - c * (u - u.previous)

    problem = og.Problem(rubbed, SHAPE, steps=4, initial={"u": 1.0, "c": 0.1})
    objective = og.LeastSquares(final={"u": np.zeros(SHAPE)})
    with pytest.raises(UsageError, match=r"read u\.previous, and with every = 2 .* give every = 1"):
        og.gradient(problem, objective, wrt=["c"], out=tmp_path / "g", every=2)


@pytest.mark.parametrize(("kept", "near"), [("float16", 0.02), ("bfloat16", 0.15)])
def test_gradients_of_halves_are_near_those_without_rounding(kept, near, tmp_path):
    """Rounding counts as the identity: what is left are the roundings of the levels."""
    pytest.importorskip("ml_dtypes")
    problem = og.Problem(
        "heat5",
        SHAPE,
        "float32",
        STEPS,
        {"k": 0.2},
        "neumann",
        {"u": "sin(x / 3) * cos(y / 4)"},
        receivers=[og.Receiver("u", (8, 9))],
    )
    objective = og.LeastSquares(np.full((STEPS, 1), 0.2))
    made = [
        og.gradient(asked, objective, wrt=["u", "k"], out=tmp_path / str(n), memory="1GiB")
        for n, asked in enumerate((problem, problem.replace(dtypes={"u": kept})))
    ]
    for name in ("u", "k"):
        exact, found = (np.asarray(one[name], np.float64) for one in made)
        assert np.abs(found - exact).max() <= near * np.abs(exact).max()
        assert exact.any()


def test_coefficients_that_are_not_finite_in_fixed_layers_are_refused(tmp_path):
    problem = posed(snapshots=[])
    c = np.full(SHAPE, 0.15, "float32")
    c[0, 3] = np.nan
    np.save(tmp_path / "c.npy", c)
    problem = problem.replace(initial={"u": 0.1, "c": str(tmp_path / "c.npy")})
    with pytest.raises(UsageError, match=r"'c' holds values .* in fixed layers"):
        og.gradient(problem, og.Total("energy"), wrt=["c"], out=tmp_path / "g", memory="1GiB")


def test_coefficients_are_made_once_for_all_runs(tmp_path, monkeypatch):
    run, seen = api.run, dict[str, tuple[str, set[str]]]()

    def noting(problem, *, out, **given):
        made = run(problem, out=out, **given)
        seen[out.name] = str(problem.initial["c"]), set(made.record.planned["uncopied"])
        return made

    monkeypatch.setattr(api, "run", noting)
    formula, path = "where(y > 6, 0.2, 0.12) + x / 1000", tmp_path / "c.npy"
    y, x = np.indices(SHAPE)
    np.save(path, (np.where(y > 6, 0.2, 0.12) + x / 1000).astype("float32"))
    given = {"wrt": ["c"], "adjoint": "recompute", "memory": "1GiB", "tier": "direct"}
    bytes_of: set[bytes] = set()
    for number, c in enumerate((formula, np.load(path), str(path))):
        problem, out = posed().replace(initial={**posed().initial, "c": c}), tmp_path / str(number)
        g = og.gradient(problem, og.Total("energy"), out=out, **given)
        bytes_of.add(np.asarray(g["c"]).tobytes())
        read = path if isinstance(c, str) and c != formula else out / "coefficient.c.npy"
        assert {name for name, _ in seen.values()} == {str(read)}
        assert all("c" in found for _, found in seen.values())
        assert not [*out.glob("coefficient*")]
        seen.clear()
    assert len(bytes_of) == 1


@pytest.mark.parametrize(("every", "wanted"), [(2, ["u"]), (1, ["u"])])
def test_states_are_rounded_that_a_run_back_reads(every, wanted, tmp_path, monkeypatch):
    """And no others: the level before is read where derivatives need it alone."""
    written, write = list[str](), task.write_level

    def noting(problem, name, path, options):
        kept = Path(problem.initial[name].path).stem
        written.append(kept)
        write(problem, name, path, options)
        found, whole = np.load(path), np.load(problem.initial[name].path)
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, whole.astype(np.float16))

    monkeypatch.setattr(task, "write_level", noting)
    problem = og.Problem(
        "wave:2",
        SHAPE,
        "float32",
        STEPS + 1,
        initial={"u": "sin(x / 3) * cos(y / 4)", "c": 0.1},
        receivers=[og.Receiver("u", (8, 9))],
    )
    g = og.gradient(
        problem,
        og.LeastSquares(np.full((STEPS + 1, 1), 0.2)),
        wrt=["c"],
        out=tmp_path / "g",
        every=every,
        history="float16",
        adjoint="history",
        memory="1GiB",
    )
    assert written == wanted
    assert np.asarray(g["c"]).any()


def test_memory_and_threads_are_given_as_for_runs(tmp_path):
    objective, given = og.LeastSquares(np.zeros((STEPS, 1))), {"wrt": ["c"], "adjoint": "history"}
    problem = posed(snapshots=())
    ways = [{}, {"memory": "25%", "threads": "auto"}, {"memory": 0.25, "threads": 2}]
    made = [
        og.gradient(problem, objective, out=tmp_path / str(n), **given, **way)["c"]
        for n, way in enumerate(ways)
    ]
    assert len({np.asarray(one).tobytes() for one in made}) == 1


def test_initial_formulas_may_name_the_axes_of_the_grid(tmp_path):
    """Of all runs, also those that begin with formulas again."""
    initial = {"u": "exp(-((depth-80)/30)**2)", "c": "0.1 + depth/5000"}
    grid = og.Grid(spacing=10.0, names=("depth", "east"), fields={"u": {"units": "m"}})
    named = og.Problem("wave:2", (12, 9), steps=4, initial=initial, grid=grid)
    depth = np.arange(12.0)[:, None] * 10 + np.zeros((12, 9))
    values = {"u": np.exp(-(((depth - 80) / 30) ** 2)), "c": 0.1 + depth / 5000}
    plain = named.replace(grid=None, initial=values)
    objective = og.LeastSquares(final={"u": np.zeros((12, 9))})
    assert og.plan_gradient(named, wrt=["c"], objective=objective).chosen
    one, other = (
        og.gradient(problem, objective, wrt=["c", "u"], out=tmp_path / name, adjoint="recompute")
        for name, problem in (("named", named), ("plain", plain))
    )
    for name in ("c", "u"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-13)


@og.stencil
def squared(u, *, k):
    flux = og.temporary(u * u, name="flux")
    return u + k * og.laplacian(flux * u)


@pytest.mark.parametrize(
    ("changes", "kind", "why"),
    [
        ({"receivers": [og.Receiver("flux", (4, 5))]}, UsageError, "traces of the receiver"),
        ({"sources": [og.Source("flux", (4, 5), 1.0)]}, og.DefinitionError, "which has a source"),
    ],
)
def test_points_at_a_temporary_are_refused_before_any_run(changes, kind, why, tmp_path):
    """Those before this were a KeyError after all runs, and a gradient without the source."""
    given = {"receivers": [og.Receiver("u", (6, 6))], **changes}
    problem = og.Problem(squared, (9, 9), steps=3, parameters={"k": 0.1}, initial={"u": 1.0})
    problem, objective = problem.replace(**given), og.LeastSquares(np.zeros((3, 1)))
    with pytest.raises(kind, match=f"{why}.*make it a field"):
        og.gradient(problem, objective, wrt=["u"], out=tmp_path / "g")
    assert not list(tmp_path.glob("g/*/record.json"))
