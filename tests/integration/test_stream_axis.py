"""Planes may pass through memory along the second axis, and no byte of a result tells it."""

import json
import random
import re

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, UsageError
from outgrid.parts import resolve
from outgrid.runs.manifest import read_manifest
from outgrid.runs.verify import verify
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads

SHAPE = PLANES, ROWS, COLUMNS = 9, 44, 64
STEPS = 11
AROUND = {"z-": "mirror", "z+": 0.5, "y-": "odd", "y+": "neumann", "x": "periodic"}


@og.stencil
def sheared(u, w, c, *, k, deep, wide):
    """Stages that read further along one axis than along the other, and profiles of both."""
    flow = og.temporary(k * (u[0, 2, 0] - u[-1, 0, 1]), name="flow")
    return [
        {"u": u + 0.1 * c * (flow - flow[0, -1, 0]) + deep.along("z") - wide.along("y")},
        {"w": 0.5 * (w + u[1, -2, 0]) * deep.along("z")},
    ]


@og.stencil
def in_place(v, a):
    """Values that a step overwrites, and whole numbers beside them."""
    return [
        {"v": v + 0.25 * (v[1, 1, 0] - v[0, -1, 0])},
        {"a": a[1, 0, 0] + og.where(v > 0.6, 1, 0)},
    ]


STENCILS = {
    "heat7": "heat7",
    "wave:4": "wave:4",
    "box27": "box27",
    "sheared": sheared,
    "in_place": in_place,
}


def posed(name, boundary=None, shape=SHAPE, dtype="float32", **given):
    """Random values on a grid of few planes, with a source where others are not moved."""
    known = STENCILS[name]
    stencil = (resolve(known) if isinstance(known, str) else known).trace(3)
    rng = np.random.default_rng(3)
    initial = {field.name: rng.random(shape) for field in stencil.fields if not field.temporary}
    for whole in given.get("dtypes", ()):
        initial[whole] = rng.integers(0, 3, shape, "uint8")
    numbers = dict.fromkeys(stencil.parameters, 0.1)
    for profile in stencil.given_profiles:
        numbers[profile.name] = 0.01 * rng.random(shape[profile.axis])
    field = stencil.lasting[0].name
    source = og.Source(field, (3.25, 20.5, 31), tuple(np.sin(np.arange(STEPS))))
    fixed = boundary or "dirichlet"
    usual = {"sources": [source]}
    return Problem(stencil, shape, dtype, STEPS, numbers, fixed, initial, **(usual | given))


def made(problem, out, axis="y", **options):
    """The bytes that a run leaves, and its record."""
    usual = {"memory": "200MiB", "tier": "direct", "depth": 4, "threads": 2}
    options = RunOptions.of(out=out, stream_axis=axis, **(usual | options))
    return fields(out, pipeline.run(problem, options))


def fields(out, result):
    files = {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}
    assert files
    assert verify(out).errors == ()
    return files, result.record


def compare(problem, folder, **options):
    """Whether the axis changes a byte; the records along z and along y."""
    expected, along_z = made(problem, folder / "z", axis="z")
    found, along_y = made(problem, folder / "y", **options)
    assert (along_z.plan.transposed, along_y.plan.transposed) == (False, True)
    assert along_y.plan.schedule.shape == (ROWS, PLANES, problem.shape[2])
    assert found == expected
    assert along_y.checksums == along_z.checksums
    return along_z, along_y


@pytest.mark.parametrize("boundary", [None, AROUND], ids=["fixed", "mixed"])
@pytest.mark.parametrize("name", STENCILS)
def test_no_byte_tells_of_it(name, boundary, tmp_path):
    compare(posed(name, boundary), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 1},
        {"slab_planes": 1, "commit_every": 0},
        {"slab_planes": 7, "strip_rows": 4},
        {"threads": 1, "engine": "threads", "request_bytes": 4096, "queue_depth": 1},
        {"watch": False},
        {"depth": None, "memory": "1GiB"},
    ],
    ids=str,
)
def test_nor_with_any_other_option(options, tmp_path):
    compare(posed("wave:4"), tmp_path, **options)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((PLANES, ROWS, 1024), "float32"),  # rows of whole blocks, which go straight to the window
        ((PLANES, ROWS, 37), "float64"),  # rows that share sectors
        ((PLANES, ROWS, 1), "float32"),
    ],
)
def test_rows_of_any_length(shape, dtype, tmp_path):
    name = "heat7" if shape[2] > 2 else "in_place"
    given = {} if name == "heat7" else {"sources": [], "dtypes": {"a": "uint8"}}
    records = compare(posed(name, shape=shape, dtype=dtype, **given), tmp_path)
    assert all(record.plan.layout.staged == (shape[2] != 1024) for record in records)


def test_planes_of_zeroes(tmp_path):
    """What a wave has not reached is known along the axis that planes pass."""
    initial = {"u": np.zeros((PLANES, 160, COLUMNS)), "c": 0.1}
    initial["u"][:, 10] = 1
    problem = Problem("wave:4", (PLANES, 160, COLUMNS), "float32", STEPS, initial=initial)
    expected, along_z = made(problem, tmp_path / "z", axis="z")
    found, along_y = made(problem, tmp_path / "y")
    assert found == expected
    assert along_z.measured.still_updates == 0
    assert along_y.measured.still_updates > 10_000


def test_initial_values_that_lie_in_files(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("u", "c"):
        np.save(tmp_path / f"{name}.npy", 0.1 * rng.random(SHAPE, np.float32))
    initial = {name: str(tmp_path / f"{name}.npy") for name in ("u", "c")}
    problem = Problem("wave:4", SHAPE, "float32", STEPS, initial=initial)
    _, record = compare(problem, tmp_path)
    assert {"u", "c"} <= {*record.plan.uncopied}


def test_several_places(tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    compare(posed("heat7"), tmp_path, scratch=places, stripe="8KiB")


@pytest.fixture
def half_made(tmp_path, cut_off):
    """A run along y that was cut off within a sweep, and the bytes that it is to leave."""
    problem, out = posed("sheared", AROUND), tmp_path / "run"
    usual = {"memory": "200MiB", "tier": "direct", "depth": 4, "slab_planes": 2}
    begun = RunOptions.of(out=out, stream_axis="y", commit_every=0, **usual)
    cut_off(45, lambda: pipeline.run(problem, begun))
    assert read_manifest(out).transposed
    assert read_manifest(out).planes > 0
    assert verify(out).errors == ()
    whole = tmp_path / "z"
    pipeline.run(problem, RunOptions.of(out=whole, memory="200MiB", stream_axis="z"))
    return out, {name: (whole / name).read_bytes() for name in ("u.npy", "w.npy")}


@pytest.mark.parametrize(
    ("settings", "transposed"),
    [
        ({}, True),
        ({"depth": 3, "stream_axis": "y"}, True),
        ({"tier": "mmap"}, True),
        ({"stream_axis": "z"}, False),
        ({"preview": True}, False),
    ],
    ids=str,
)
def test_a_run_that_was_cut_off_goes_on(settings, transposed, half_made):
    """Along its axis, or along another one from its last state."""
    out, expected = half_made
    plan = pipeline.resume(out, RunOptions.of(out=out, memory="200MiB", **settings)).record.plan
    assert plan.transposed == transposed
    assert plan.schedule.begin.planes > 0 or {*settings} & {"tier", "stream_axis", "preview"}
    assert {name: (out / name).read_bytes() for name in expected} == expected
    assert verify(out).errors == ()


def test_it_goes_on_on_several_ranks(half_made):
    out, expected = half_made
    options = RunOptions.of(out=out, memory="200MiB")
    made, _ = in_threads(lambda comm: pipeline.resume(out, options, comm=comm), 2, random.Random(1))
    assert not made.record.plan.transposed
    for name, whole in expected.items():
        assert np.asarray(made[name.removesuffix(".npy")]).tobytes() in whole


def test_a_value_that_is_not_finite_is_found_in_its_cell(tmp_path):
    initial = {"u": np.ones(SHAPE)}
    problem = Problem(
        "heat7",
        SHAPE,
        "float32",
        STEPS,
        {"k": 0.1},
        "dirichlet",
        initial,
        sources=[og.Source("u", (5, 31, 17), (0.0,) * 6 + (3e38, 3e38, 0.0, 0.0, 0.0))],
    )
    words = []
    for axis in ("z", "y"):
        with pytest.raises(ExecutionError) as caught:
            made(problem, tmp_path / axis, axis=axis)
        words.append(re.search(r"u became [^;]*", str(caught.value))[0])
    assert words[0] == words[1]
    assert "(z, y, x) = (5, 31, 17)" in words[0]


REFUSED = {
    "two axes": (lambda: Problem("heat5", (20, 30), initial={"u": 0.0}), "two axes"),
    "receivers": (lambda: posed("heat7", receivers=[og.Receiver("u", (3, 4, 5))]), "receivers"),
    "snapshots": (lambda: posed("heat7", snapshots=[og.Snapshot("u", every=2)]), "snapshots"),
    "previews": (lambda: posed("heat7"), "previews"),
    "regions": (
        lambda: posed("heat7", regions={"u": {"y": [2, 30]}}, sources=[]),
        "parts of the grid",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_is_refused(case, tmp_path):
    make, words = REFUSED[case]
    with pytest.raises(UsageError, match=f"stream_axis = 'y' is not for this run: .*{words}"):
        made(make(), tmp_path / "run", preview=case == "previews")
    assert not (tmp_path / "run").exists()


def test_options_that_exclude_it():
    with pytest.raises(UsageError, match="stream_axis = 'y' is for"):
        RunOptions.of(memory="1GiB", stream_axis="y", tier="memory")


@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 1024, 2048), "y"), ((1024, 64, 2048), "z"), ((512, 512, 512), "z")]
)
def test_the_plan_chooses_the_axis_of_smaller_planes(shape, axis, tmp_path, capsys):
    """Where whole planes of the first axis leave room for a few steps only."""
    job = tmp_path / "job.toml"
    job.write_text(
        f"""
        [problem]
        stencil = "heat7"
        shape = {[*shape]}
        steps = 64
        initial = {{u = 0.0}}
        [run]
        memory = "192MiB"
        tier = "direct"
        """
    )
    assert main(["plan", str(job), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["transposed"] == (axis == "y")
    told = [note for note in plan["notes"] if "planes pass along y" in note]
    assert len(told) == (axis == "y")
    assert main(["plan", str(job)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"heat7 on {' x '.join(map(str, shape))} float64")
    assert ("planes along y," in text) == (axis == "y")


def test_arrays_that_a_problem_begins_with_take_their_memory():
    problem = posed("wave:4", shape=(PLANES, 512, 1024))
    plans = [
        pipeline.plan(problem, RunOptions.of(memory="400MiB", tier="direct", stream_axis=axis))
        for axis in "zy"
    ]
    along_z, along_y = (plan.memory.fixed_bytes for plan in plans)
    assert along_y == along_z > 100 << 20
