"""Planes may pass through memory along another axis than the first.

No byte of a result tells of the second. Along the last one the values are the same, and files are
in Fortran order.
"""

import json
import random
import re

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, InfeasiblePlan, UsageError
from outgrid.execute import fill
from outgrid.exports import export
from outgrid.formats import InputFile
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
    assert (along_z.plan.transposed, along_y.plan.transposed) == (0, 1)
    assert along_y.plan.schedule.shape == (ROWS, PLANES, problem.shape[2])
    assert found == expected
    assert along_y.checksums == along_z.checksums
    return along_z, along_y


def compare_values(problem, folder, **options):
    """Whether files in Fortran order hold the same values; the records along z and along x."""
    _, along_z = made(problem, folder / "z", axis="z")
    _, along_x = made(problem, folder / "x", axis="x", **options)
    nz, ny, nx = problem.shape
    assert along_x.plan.transposed == 2
    assert along_x.plan.schedule.shape == (nx, ny, nz)
    for path in (folder / "z").glob("*.npy"):
        expected, found = np.load(path), np.load(folder / "x" / path.name)
        assert found.flags.f_contiguous
        assert found.shape == problem.shape
        assert np.ascontiguousarray(found).tobytes() == expected.tobytes()
    return along_z, along_x


COMPARED = {"y": compare, "x": compare_values}


@pytest.mark.parametrize("axis", COMPARED)
@pytest.mark.parametrize("boundary", [None, AROUND], ids=["fixed", "mixed"])
@pytest.mark.parametrize("name", STENCILS)
def test_no_value_tells_of_it(name, boundary, axis, tmp_path):
    COMPARED[axis](posed(name, boundary), tmp_path)


@pytest.mark.parametrize("axis", COMPARED)
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
def test_nor_with_any_other_option(options, axis, tmp_path):
    COMPARED[axis](posed("wave:4"), tmp_path, **options)


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


def wave_in_files(folder, shape):
    """A wave whose values and coefficients lie in files of C order."""
    rng = np.random.default_rng(0)
    for name in ("u", "c"):
        np.save(folder / f"{name}.npy", 0.1 * rng.random(shape, np.float32))
    initial = {name: str(folder / f"{name}.npy") for name in ("u", "c")}
    return Problem("wave:4", shape, "float32", STEPS, initial=initial)


def test_initial_values_that_lie_in_files(tmp_path):
    _, record = compare(wave_in_files(tmp_path, SHAPE), tmp_path)
    assert {"u", "c"} <= {*record.plan.uncopied}


@pytest.mark.parametrize("shape", [SHAPE, (40, 40, 40)], ids=str)
def test_files_in_c_order_are_not_read_as_if_they_were_in_fortran_order(shape, tmp_path):
    """They are copied first, also those of a cube, whose shape says nothing."""
    _, record = compare_values(wave_in_files(tmp_path, shape), tmp_path)
    assert not record.plan.uncopied
    assert any("the run keeps it in Fortran order" in note for note in record.plan.notes)


def test_a_run_begins_with_what_another_has_left_in_fortran_order(tmp_path):
    problem = posed("heat7", sources=[])
    made(problem, tmp_path / "first", axis="x")
    left = InputFile(str(tmp_path / "first" / "u.npy"), order="F")
    compare_values(problem.replace(initial={"u": left}), tmp_path)


def test_planes_of_zeroes_along_x(tmp_path):
    initial = {"u": np.zeros((PLANES, 30, 160)), "c": 0.1}
    initial["u"][:, :, 10] = 1
    problem = Problem("wave:4", (PLANES, 30, 160), "float32", STEPS, initial=initial)
    _, along_x = compare_values(problem, tmp_path)
    assert along_x.measured.still_updates > 10_000


def test_several_places(tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    compare(posed("heat7"), tmp_path, scratch=places, stripe="8KiB")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1024, 12, 44), "float32"),  # rows of whole blocks
        ((37, 12, 44), "float64"),
        ((5, 12, 60), "float32"),
    ],
)
def test_rows_of_files_in_fortran_order(shape, dtype, tmp_path):
    problem = posed("heat7", shape=shape, dtype=dtype, sources=[])
    records = compare_values(problem, tmp_path)
    assert records[1].plan.layout.staged == (shape[0] != 1024)


@pytest.mark.parametrize("kind", ["formula", "function", "number", "file", "other order", "array"])
def test_what_files_in_fortran_order_begin_with(kind, tmp_path, monkeypatch):
    """In blocks of a few rows of all planes, which are read in smaller ones."""
    shape = (17, 29, 1030)
    cells = np.random.default_rng(1).random(shape, np.float32)
    np.save(tmp_path / "u.npy", cells)
    np.save(tmp_path / "f.npy", np.asfortranarray(cells))
    values = {
        "formula": "sin(x/9)*cos(y/7) + z/70",
        "function": lambda z, y, x: z + 0.1 * y - np.exp(-x / 99),
        "number": 0.25,
        "file": str(tmp_path / "u.npy"),
        "other order": InputFile(str(tmp_path / "f.npy"), order="F"),
        "array": cells,
    }
    monkeypatch.setattr(fill, "CHUNK_BYTES", 40_000)
    monkeypatch.setattr(fill, "BLOCKS", 512)
    blocks, parts = _counted(monkeypatch, "blocks"), _counted(monkeypatch, "_parts")
    problem = Problem("heat7", shape, "float32", 0, initial={"u": values[kind]})
    _, record = made(problem, tmp_path / "x", axis="x")
    assert 1 < len(blocks) < len(parts)
    assert record.plan.fortran
    _, record = made(problem, tmp_path / "z", axis="z")
    found, expected = (np.load(tmp_path / axis / "u.npy") for axis in "xz")
    assert found.flags.f_contiguous
    assert np.array_equal(found, expected)


def _counted(monkeypatch, name):
    """What a method of the fill yields from now on."""
    seen, method = [], getattr(fill._Filling, name)

    def counting(self, *given):
        for box in method(self, *given):
            seen.append(box)
            yield box

    monkeypatch.setattr(fill._Filling, name, counting)
    return seen


def test_a_limit_has_room_to_fill_files_in_fortran_order():
    """As much as the message says, and it names a limit that does."""
    problem = Problem("heat7", (4096, 32, 1024), "float64", 8, initial={"u": 0.0})
    usual = {"tier": "direct", "stream_axis": "x"}
    with pytest.raises(InfeasiblePlan, match=r"rows of all planes, 32\.0 MiB") as caught:
        pipeline.plan(problem, RunOptions.of(memory="128MiB", **usual))
    named = re.search(r"set memory to ([\d.]+) MiB", str(caught.value))
    plan = pipeline.plan(problem, RunOptions.of(memory=f"{float(named[1]) + 1}MiB", **usual))
    assert plan.fortran


def test_readers_find_the_axes_of_a_result_in_fortran_order(tmp_path):
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    problem = Problem("heat7", (7, 12, 2000), "float64", 3, initial={"u": "x + 0.5*y*z"})
    _, along_x = made(problem, out := tmp_path / "x", axis="x")
    made(problem, tmp_path / "z", axis="z")
    expected = np.load(tmp_path / "z" / "u.npy")
    result = og.open(out)
    assert np.array_equal(result["u"], expected)
    assert result["u"][3, 4, 5] == expected[3, 4, 5]
    with xarray.open_dataset(out, engine="outgrid") as found:
        assert np.array_equal(found["u"], expected)
    array = zarr.open_group(out, mode="r")["u"]
    assert array.chunks[:2] == (7, 12)
    assert array.chunks[2] < 2000
    assert np.array_equal(array[...], expected)
    assert np.array_equal(array[2:5, 3, 100:1900:7], expected[2:5, 3, 100:1900:7])
    for name in ("u.h5", "u.zarr", "again.npy"):
        export(result, tmp_path / name)
    assert np.array_equal(np.load(tmp_path / "again.npy"), expected)
    assert np.array_equal(zarr.open_group(tmp_path / "u.zarr", mode="r")["u"][...], expected)
    again = Problem("heat7", problem.shape, steps=0, initial={"u": str(out / "u.npy")})
    with pytest.raises(UsageError, match='order="F"'):
        made(again, tmp_path / "wrong", axis="z")
    assert along_x.checksums.keys() == {"u"}


def test_bytes_that_changed_in_a_file_in_fortran_order_are_found(tmp_path):
    made(posed("heat7"), tmp_path / "x", axis="x")
    with open(tmp_path / "x" / "u.npy", "r+b") as file:
        file.seek(4096 + 4 * PLANES * (ROWS * 5 + 7))
        file.write(b"\xff")
    (error,) = verify(tmp_path / "x").errors
    assert "row 7 of plane 5; " in str(error)
    with open(tmp_path / "x" / "u.npy", "r+b") as file:
        head = file.read(256).replace(b"'fortran_order': True", b"'fortran_order': False")
        file.seek(0)
        file.write(head[:256])
    assert verify(tmp_path / "x").errors


@pytest.fixture
def begun_along(tmp_path, cut_off):
    """``begun_along(axis)``: a run that was cut off within a sweep, the bytes it is to leave."""

    def begin(axis):
        problem, out = posed("sheared", AROUND), tmp_path / "run"
        usual = {"memory": "200MiB", "tier": "direct", "depth": 4, "slab_planes": 2}
        begun = RunOptions.of(out=out, stream_axis=axis, commit_every=0, **usual)
        cut_off({"z": 12, "y": 45, "x": 60}[axis], lambda: pipeline.run(problem, begun))
        assert read_manifest(out).transposed == "zyx".index(axis)
        assert read_manifest(out).planes > 0 or axis == "z"
        assert verify(out).errors == ()
        whole = tmp_path / axis
        uncut = "x" if axis == "x" else "z"
        pipeline.run(problem, RunOptions.of(out=whole, memory="200MiB", stream_axis=uncut))
        return out, {name: (whole / name).read_bytes() for name in ("u.npy", "w.npy")}

    return begin


@pytest.mark.parametrize("settings", [{}, {"depth": 3}, {"stream_axis": "x", "depth": 2}], ids=str)
def test_a_run_along_x_goes_on(settings, begun_along):
    out, expected = begun_along("x")
    plan = pipeline.resume(out, RunOptions.of(out=out, memory="200MiB", **settings)).record.plan
    assert plan.transposed == 2
    assert plan.schedule.begin.planes > 0 or "depth" in settings
    assert {name: (out / name).read_bytes() for name in expected} == expected
    assert verify(out).errors == ()


@pytest.mark.parametrize(
    ("begun", "settings", "words"),
    [
        ("x", {"stream_axis": "z"}, "along x, so its files are in Fortran order"),
        ("x", {"stream_axis": "y"}, "along x, so its files are in Fortran order"),
        ("x", {"preview": True}, "only: previews"),
        ("x", {"tier": "mmap"}, "only: .*tier direct"),
        ("y", {"stream_axis": "x"}, "along y, so its files are not in Fortran order"),
        ("z", {"stream_axis": "x"}, "along z, so its files are not in Fortran order"),
    ],
    ids=str,
)
def test_files_in_another_order_are_not_gone_on_with(begun, settings, words, begun_along):
    out, expected = begun_along(begun)
    with pytest.raises(UsageError, match=words):
        pipeline.resume(out, RunOptions.of(out=out, memory="200MiB", **settings))
    pipeline.resume(out, RunOptions.of(out=out, memory="200MiB"))
    assert {name: (out / name).read_bytes() for name in expected} == expected


def test_files_in_another_order_are_no_pieces_of_ranks(begun_along):
    out, _ = begun_along("x")
    options = RunOptions.of(out=out, memory="200MiB")
    with pytest.raises(UsageError, match="only: ranks and devices stream along z"):
        in_threads(lambda comm: pipeline.resume(out, options, comm=comm), 2, random.Random(1))
    assert verify(out).errors == ()


@pytest.fixture
def half_made(begun_along):
    """A run along y that was cut off within a sweep, and the bytes that it is to leave."""
    return begun_along("y")


@pytest.mark.parametrize("name", ["u.npy", "w.npy"])
def test_older_manifests_call_the_second_axis_true(name, half_made):
    out, expected = half_made
    path = out / "manifest.json"
    older = json.loads(path.read_text()) | {"format": 9, "transposed": True}
    path.write_text(json.dumps(older))
    assert pipeline.resume(out, RunOptions.of(out=out, memory="200MiB")).record.plan.transposed == 1
    assert (out / name).read_bytes() == expected[name]


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
    for axis in ("z", "y", "x"):
        with pytest.raises(ExecutionError) as caught:
            made(problem, tmp_path / axis, axis=axis)
        words.append(re.search(r"u became [^;]*", str(caught.value))[0])
    assert words[0] == words[1] == words[2]
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


def test_a_gradient_takes_no_results_in_fortran_order(tmp_path):
    problem, target = posed("heat7", sources=[]), {"u": np.zeros(SHAPE)}
    options = {"memory": "200MiB", "tier": "direct", "stream_axis": "x"}
    objective = og.LeastSquares(final=target)
    with pytest.raises(UsageError, match="leaves in Fortran order; leave it out"):
        og.gradient(problem, objective, wrt=["u"], out=tmp_path / "g", **options)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tier": "mmap"}, "is for tier auto or direct, not for tier mmap"),
        ({"file": "u.h5"}, "is for results that stay in a folder"),
        ({"scratch": ["one", "two"]}, "in one place"),
        ({"preview": True}, "previews"),
    ],
    ids=str,
)
def test_what_files_in_fortran_order_exclude(given, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        made(posed("heat7"), tmp_path / "run", axis="x", **given)
    assert not (tmp_path / "run").exists()


def test_the_plan_says_where_the_last_axis_takes_less_time():
    """It is not taken unasked; nor does the plan speak of it where it is no gain."""
    usual = {"memory": "192MiB", "tier": "direct"}
    told = {}
    for shape in ((64, 1024, 8192), (512, 512, 512)):
        problem = Problem("heat7", shape, steps=64, initial={"u": 0.0})
        plan = pipeline.plan(problem, RunOptions.of(**usual))
        assert plan.transposed < 2
        told[shape] = [note for note in plan.notes if "stream_axis = 'x'" in note]
        asked = pipeline.plan(problem, RunOptions.of(stream_axis="x", **usual))
        faster = asked.predicted_seconds < 0.9 * plan.predicted_seconds
        assert len(told[shape]) == faster
    assert [len(notes) for notes in told.values()] == [1, 0]


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
    assert plan["transposed"] == "zyx".index(axis)
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
