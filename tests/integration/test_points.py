"""Sources add to single places and receivers look at them, whatever the order of updates."""

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import DefinitionError, UsageError
from outgrid.stencil.points import Receiver, Source, corners
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference

STEPS = 13
VALUES = np.random.default_rng(2).standard_normal((3, STEPS))


@stencil
def staggered(p, v, *, k):
    """Two stages: velocity from pressure, pressure from velocity."""
    return [
        {"v": v - k * (p[1, 0, 0] - p + p[0, 1, 1] - p)},
        {"p": p - k * (v - v[-1, 0, 0] + v - v[0, -1, -1])},
    ]


SOURCES = [
    Source("p", (5, 4, 9), VALUES[0]),
    Source("p", (8.25, 6.5, 20), VALUES[1]),
    Source("v", (8, 6.5, 20.125), VALUES[2]),
    {"field": "v", "position": (9, 4, 3), "values": 0.5},
]
RECEIVERS = [Receiver("p", (6, 5, 9.75)), Receiver("v", (0, 0, 0)), Receiver("p", (11, 8.5, 30))]


def driven(shape=(20, 12, 40), dtype="float64", steps=STEPS, **given):
    given = {"sources": SOURCES, "receivers": RECEIVERS} | given
    initial = {"p": "x / nx", "v": "y / ny"}
    return Problem(staggered, shape, dtype, steps, {"k": 0.2}, initial=initial, **given)


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 1} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fields_and_traces_are_the_same_however_they_are_computed(dtype, tmp_path):
    problem = driven(dtype=dtype)
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory")
    rows = []

    def seen(state):
        rows.append(
            [
                sum(
                    float(state[each.field][cell]) * weight
                    for cell, weight in corners(each.position)
                )
                for each in problem.receivers
            ]
        )

    reference = run_reference(problem, seen=seen)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(wanted.traces, rows, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(wanted["p"], reference["p"], rtol=tolerance, atol=tolerance)
    silent = run(driven(dtype=dtype, sources=[]), tmp_path / "silent")
    assert abs(silent["p"] - wanted["p"]).max() > 0.1
    for number, options in enumerate(
        [
            {"tier": "direct", "depth": 5, "slab_planes": 3, "threads": 2},
            {"tier": "direct", "depth": 4, "slab_planes": 1, "tile_rows": 6},
            {"tier": "memory", "depth": 13, "tile_rows": 4, "tile_planes": 3},
        ]
    ):
        found = run(problem, tmp_path / str(number), **options)
        for field in "pv":
            assert found[field].tobytes() == wanted[field].tobytes()
        assert found.traces.tobytes() == wanted.traces.tobytes()


def test_points_of_a_grid_that_closes_along_the_stream(tmp_path):
    near = [Receiver("p", (0, 4, 4)), Receiver("v", (39, 4, 9)), Receiver("p", (3.5, 4, 9))]
    problem = driven((40, 12, 40), boundary={"z": "periodic"}, receivers=near)
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory")
    assert (np.abs(wanted.traces).max(axis=0) > 0).all()
    for depth in (3, 6):
        found = run(problem, tmp_path / f"{depth}", tier="direct", depth=depth, slab_planes=3)
        assert found["p"].tobytes() == wanted["p"].tobytes()
        assert found.traces.tobytes() == wanted.traces.tobytes()


def test_a_source_in_strips_and_in_two_dimensions(tmp_path):
    given = {"sources": [Source("u", (30, 20, 9.5), VALUES[0])], "initial": {"u": 0, "c": 0.1}}
    given |= {"receivers": [Receiver("u", (33.5, 22, 9))]}
    problem = Problem("wave:4", (40, 44, 24), "float32", STEPS, **given)
    wanted = run(problem, tmp_path / "plain", tier="memory")
    found = run(problem, tmp_path / "strips", tier="direct", depth=4, strip_rows=9)
    assert found["u"].tobytes() == wanted["u"].tobytes()
    assert found.traces.tobytes() == wanted.traces.tobytes()
    given = {"sources": [Source("u", (30, 9.5), 1.0)], "initial": {"u": 0}}
    flat = Problem("heat5", (60, 70), "float64", 30, **given)
    wanted = run(flat, tmp_path / "flat")
    assert 20 < wanted["u"].sum() <= 30
    found = run(flat, tmp_path / "tiles", tier="direct", depth=7, slab_planes=2, tile_rows=16)
    assert found["u"].tobytes() == wanted["u"].tobytes()
    with pytest.raises(UsageError, match="had no receivers"):
        assert wanted.traces


@pytest.mark.parametrize("around", [{}, {"boundary": {"z": "periodic"}}])
def test_traces_go_on_where_a_run_was_cut_off(around, tmp_path, cut_off):
    problem = driven((30, 12, 40), **around)
    options = {"tier": "direct", "depth": 3, "slab_planes": 2}
    wanted = run(problem, tmp_path / "whole", **options)
    out = tmp_path / "cut"
    cut_off(30, lambda: run(problem, out, **options))
    assert not (out / "receivers.npy").exists()
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=2, tier="direct"))
    assert found["p"].tobytes() == wanted["p"].tobytes()
    assert found.traces.tobytes() == wanted.traces.tobytes()
    assert {path.name for path in out.iterdir()} >= {"receivers.npy", "p.npy", "v.npy"}
    assert not list(out.glob("*.new"))


def test_a_problem_with_points_is_read_back():
    problem = driven()
    assert Problem.from_dict(problem.to_dict()) == problem
    rest = problem.after(4)
    assert rest.sources[0].values == tuple(VALUES[0][4:])
    assert rest.sources[3].values == 0.5
    assert dict(corners((2.25, 3))) == {(2, 3): 0.75, (3, 3): 0.25}


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"sources": [Source("p", (0, 4, 4), 1)]}, ["(0.0, 4.0, 4.0)", "1..18"]),
        ({"sources": [Source("p", (18.5, 4, 4), 1)]}, ["18.5", "1..18"]),
        ({"receivers": [Receiver("p", (4, 4))]}, ["(4.0, 4.0)", "3 coordinates (z, y, x)"]),
        ({"sources": [Source("p", (4, 4, 4), [1, 2])]}, ["2 values for 13 steps"]),
        ({"receivers": [Receiver("q", (4, 4, 4))]}, ["no field 'q'"]),
        ({"receivers": [{"field": "p"}]}, ["Receiver needs the entry 'position'"]),
        ({"sources": [3]}, ["not 3"]),
    ],
)
def test_points_that_do_not_fit_are_refused(given, parts):
    with pytest.raises(DefinitionError) as caught:
        driven(**given)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("values", [float("nan"), [1, "x"], None])
def test_a_source_adds_numbers(values):
    with pytest.raises(DefinitionError, match="must be finite numbers"):
        Source("p", (1, 2, 3), values)
