"""What looks at cells, on grids whose strips, or planes, go round a circle."""

import msgspec.structs
import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, Stopped
from outgrid.execute.stop import Stop
from outgrid.stencil.model import Stage
from outgrid.stencil.problem import Problem

SHAPE = (20, 26, 17)
STEPS = 11


@og.stencil(ndim=3)
def driven(u, c, *, k, damping):
    """Second order in time, with a coefficient, a profile along y and reductions."""
    new = 2 * u - u.previous + c * og.laplacian(u) - k * damping.along("y") * u
    return {"u": new, "energy": og.sum(u * u), "peak": og.max(u)}


def problem(**given):
    values = np.random.default_rng(5).random(SHAPE)
    return Problem(
        driven,
        SHAPE,
        "float64",
        STEPS,
        {"k": 0.1, "damping": np.linspace(0.0, 1.0, SHAPE[1])},
        {"y": "periodic", "z+": "mirror"},
        {"u": values, "c": 0.1},
        **given,
    )


def unreduced(**given):
    """The same without reductions, so that it may go on within a sweep."""
    rule = msgspec.structs.replace(
        driven.trace(), stages=tuple(Stage(each.assignments) for each in driven.trace().stages)
    )
    data = problem(**given)
    return Problem(
        rule, SHAPE, "float64", STEPS, {**data.parameters, **data.profiles}, data.boundary,
        {"u": data.initial["u"], "c": 0.1}, **given,
    )  # fmt: skip


def run(of, out, **options):
    return pipeline.run(
        of, RunOptions.of(out=out, **({"memory": "512MiB", "threads": 2} | options))
    )


CUT = {"tier": "direct", "slab_planes": 3}
NARROW = {"u": "float32", "c": "float32"}


@pytest.mark.parametrize("dtypes", [{}, NARROW], ids=["of one type", "of several"])
@pytest.mark.parametrize(
    "cut", [{"depth": 4, "strip_rows": 7}, {"depth": 3, "strip_rows": 25, "tile_rows": 4}]
)
def test_sources_receivers_snapshots_and_reductions_are_those_of_plain_sweeps(
    cut, dtypes, tmp_path
):
    values = np.random.default_rng(2).standard_normal(STEPS)
    corners = [(5, 0, 3), (9, 25, 4), (10, 12.5, 8), (7, 24.25, 8)]
    given = {
        "dtypes": dtypes,
        "sources": [og.Source("u", at, values) for at in corners[:3]],
        "receivers": [og.Receiver("u", at) for at in corners],
        "snapshots": [
            og.Snapshot("u", every=2, z=11),
            og.Snapshot("u", every=3, y=slice(0, 26, 4), x=slice(1, 17, 3)),
        ],
    }
    plain = run(problem(**given), tmp_path / "plain", scheme="plain", tier="memory")
    found = run(problem(**given), tmp_path / "strips", **CUT, **cut)
    assert found["u"].dtype == dtypes.get("u", "float64")
    assert found["u"].tobytes() == plain["u"].tobytes()
    assert found.traces.tobytes() == plain.traces.tobytes()
    for name in ("energy", "peak"):
        assert found.reductions[name].tobytes() == plain.reductions[name].tobytes()
    assert len(found.snapshots) == len(plain.snapshots) == 2
    for one, other in zip(found.snapshots, plain.snapshots, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_a_run_with_narrow_fields_goes_on_in_a_strip_that_closes(tmp_path, monkeypatch):
    monkeypatch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0)
    wanted = run(problem(dtypes=NARROW), tmp_path / "plain", scheme="plain", tier="memory")
    stop, cut = Stop(), {**CUT, "depth": 4, "strip_rows": 7, "commit_every": 1e-6}

    def in_the_second_sweep(progress):
        if progress.sweep == 1:
            stop.request("the test")

    options = RunOptions.of(memory="512MiB", threads=2, out=tmp_path / "run", **cut)
    with pytest.raises(Stopped):
        pipeline.run(unreduced(dtypes=NARROW), options, in_the_second_sweep, stop)
    assert og.resume(tmp_path / "run", memory="512MiB")["u"].tobytes() == wanted["u"].tobytes()


@pytest.mark.parametrize("stopped", [False, True])
def test_strips_of_a_grid_that_closes_along_the_stream(stopped, tmp_path, monkeypatch):
    monkeypatch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0)
    shape, stop = (44, 26, 17), Stop()
    given = {
        "sources": [og.Source("u", (0, 12.5, 8), 0.25), og.Source("u", (42.5, 7, 8), 0.5)],
        "receivers": [og.Receiver("u", (0, 9.5, 8)), og.Receiver("u", (21, 24, 8))],
        "snapshots": [og.Snapshot("u", every=3, y=9)],
    }
    initial = {"u": np.random.default_rng(5).random(shape), "c": 0.1}
    around = {"z": "periodic", "y+": "mirror"}
    of = Problem("wave:4", shape, "float64", STEPS, {}, around, initial, **given)
    wanted = run(of, tmp_path / "plain", scheme="plain", tier="memory")
    front = run(of, tmp_path / "front", tier="memory", depth=4, tile_rows=8)
    assert front["u"].tobytes() == wanted["u"].tobytes()

    def in_the_second_sweep(progress):
        if stopped and progress.sweep == 1:
            stop.request("the test")

    cut = {**CUT, "depth": 4, "strip_rows": 7, "commit_every": 1e-6, "out": tmp_path / "run"}
    options = RunOptions.of(memory="512MiB", threads=2, **cut)
    if stopped:
        with pytest.raises(Stopped):
            pipeline.run(of, options, in_the_second_sweep, stop)
        found = og.resume(tmp_path / "run", memory="512MiB")
    else:
        found = pipeline.run(of, options)
    assert found.traces.tobytes() == wanted.traces.tobytes() == front.traces.tobytes()
    assert np.array_equal(found.snapshots[0], wanted.snapshots[0])
    assert found["u"].tobytes() == wanted["u"].tobytes()


@pytest.mark.parametrize("row", [0, 3, 25])
def test_the_first_value_that_is_not_finite_is_named_where_it_lies(row, tmp_path):
    @og.stencil(ndim=3)
    def squares(u):
        return u * u + 0.0 * og.laplacian(u)

    values = np.full(SHAPE, 0.5, np.float32)
    values[9, row, 4] = 2.0
    of = Problem(squares, SHAPE, "float32", STEPS, {}, {"y": "periodic"}, {"u": values})
    words = []
    for number, options in enumerate(
        ({"scheme": "plain", "tier": "memory"}, {**CUT, "depth": 4, "strip_rows": 6})
    ):
        with pytest.raises(ExecutionError) as caught:
            run(of, tmp_path / str(number), **options)
        words.append(str(caught.value).split(";")[0])
    assert words[0] == words[1]
    assert f", {row}, 4)" in words[0]
