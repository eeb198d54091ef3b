from pathlib import Path

import pytest

from outgrid.errors import DefinitionError, UsageError
from outgrid.formats import InputFile
from outgrid.job import load_job
from outgrid.machine import memory_limit_bytes
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.problem import Boundary, Problem

PROBLEM = """
[problem]
stencil = "heat7"
shape = [34, 66, 64]
steps = 8
boundary = {kind = "dirichlet", value = 1}
parameters = {k = 0.1}
initial = {u = "start.npy"}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "heat.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_job_file(tmp_path):
    text = PROBLEM + '[run]\nmemory = "64MiB"\nscratch = "fast"\nout = "/results"\n'
    job = load_job(write(tmp_path, text))
    assert job.problem.shape == (34, 66, 64)
    assert job.problem.dtype == "float64"
    assert job.problem.boundary == Boundary("dirichlet", 1.0)
    assert job.problem.initial == {"u": InputFile(tmp_path / "start.npy")}
    assert job.options.memory_bytes == 64 << 20
    assert job.options.scratch == tmp_path / "fast"
    assert job.options.out == Path("/results")


def test_files_of_values_are_told_in_tables(tmp_path):
    said = """{path = "m.nc", name = "T", index = [0], transpose = [2, 1, 0], missing = 0.0}"""
    job = load_job(write(tmp_path, PROBLEM.replace('"start.npy"', said)))
    wanted = InputFile(tmp_path / "m.nc", "T", index=(0,), transpose=(2, 1, 0), missing=0.0)
    assert job.problem.initial == {"u": wanted}
    assert Problem.from_dict(job.problem.to_dict()) == job.problem


def test_a_job_says_what_its_grid_is(tmp_path):
    said = """
[problem.grid]
spacing = 12.5
units = ["m", "m", "km"]
fields = {u = {units = "K"}}
"""
    job = load_job(write(tmp_path, PROBLEM + said))
    assert job.problem.grid.spacing == (12.5, 12.5, 12.5)
    assert job.problem.grid.fields == {"u": {"units": "K"}}
    with pytest.raises((UsageError, DefinitionError), match=r"spacings.*spacing"):
        load_job(write(tmp_path, PROBLEM + said.replace("spacing", "spacings")))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{path = "m.csv"}', ["m.csv", "'.csv'", ".npy", ".zarr"]),
        ('{path = "m.raw"}', ["m.raw", "give shape and dtype"]),
        ('{path = "m.npy", dtype = "f4"}', ["has a header with dtype", "leave"]),
        ('{path = "m.npy", name = "u"}', ["holds one array", "'u'"]),
        ('{path = "m.h5:a", name = "b"}', ["'a'", "'b'", "give one"]),
        ('{path = "m.h5", transpose = [0, 0, 1]}', ["(0, 0, 1)", "must be a permutation"]),
        ('{path = "m.h5", interp = "cubic"}', ["u.interp = 'cubic'", "expected one of linear"]),
        ('{path = "m.h5", units = "K"}', ["units"]),
    ],
)
def test_odd_tables_of_files_are_refused(tmp_path, said, words):
    with pytest.raises((UsageError, DefinitionError)) as caught:
        load_job(write(tmp_path, PROBLEM.replace('"start.npy"', said)))
    assert all(word in str(caught.value) for word in words), caught.value


def test_what_is_left_out_has_a_place(tmp_path):
    job = load_job(write(tmp_path, PROBLEM))
    assert job.options.memory_bytes == memory_limit_bytes() // 2
    assert job.options.out == tmp_path / "heat.run"
    assert job.options.scratch == tmp_path / "heat.run/scratch"


def test_initial_values_may_be_numbers_and_expressions(tmp_path):
    job = load_job(write(tmp_path, PROBLEM.replace('"start.npy"', '"exp(-x / nx)"')))
    assert job.problem.initial == {"u": InitialExpression("exp(-x / nx)")}
    job = load_job(write(tmp_path, PROBLEM.replace('"start.npy"', "1")))
    assert job.problem.initial == {"u": 1.0}


def test_a_stencil_may_come_from_a_file_beside_the_job(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import math\n\ndef decay(u, *, k):\n    return u[0, 0, 0] - k * u[0, 0, -1]\n"
    )
    job = load_job(write(tmp_path, PROBLEM.replace('"heat7"', '"mine.py:decay"')))
    assert job.problem.stencil.name == "decay"
    assert job.problem.stencil.radius == (0, 0, 1)


def test_mistakes_in_the_problem_are_told(tmp_path):
    with pytest.raises(DefinitionError, match="did you mean 'heat7'"):
        load_job(write(tmp_path, PROBLEM.replace('"heat7"', '"heat8"')))
    with pytest.raises(DefinitionError, match="k"):
        load_job(write(tmp_path, PROBLEM.replace("{k = 0.1}", "{q = 0.1}")))


def test_a_boundary_may_say_what_holds_at_a_face_and_for_a_field(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        '[problem]\nstencil = "heat5"\nshape = [9, 9]\nsteps = 3\ninitial = {u = 1}\n'
        '[problem.boundary]\nx = "periodic"\n"y-" = 2\n'
        '"y+" = {kind = "dirichlet", value = 3}\nfields = {u = {"y-" = "neumann"}}\n'
    )
    boundary = load_job(path).problem.boundary
    assert boundary.face("u", "x", "+").kind == "periodic"
    assert boundary.face("u", "y", "-").kind == "neumann"
    assert boundary.face("u", "y", "+").value == 3


POINTS = """
[problem]
stencil = "acoustic_pml:2"
shape = [30, 40]
steps = 4
initial = {p = 0, c = 0.1, slope = 0, bend = 0}

[problem.parameters]
gain_x = "-0.1 * (x < 5)"
decay_x = 0.5
gain_y = 0
decay_y = 0
gain_half_x = 0
decay_half_x = 0
gain_half_y = 0
decay_half_y = 0

[[problem.sources]]
field = "p"
position = [12, 13.5]
values = "sin(pi * step / 2)"

[[problem.receivers]]
field = "p"
position = [10, 11]
"""


def test_a_job_has_sources_receivers_and_profiles(tmp_path):
    problem = load_job(write(tmp_path, POINTS)).problem
    assert problem.sources[0].position == (12.0, 13.5)
    assert problem.sources[0].values == pytest.approx((0, 1, 0, -1))
    assert problem.receivers[0].field == "p"
    assert problem.profile_values("gain_x").tolist() == [-0.1] * 5 + [0.0] * 35
    table = POINTS.replace('"sin(pi * step / 2)"', "[1, 2, 3, 4]")
    assert load_job(write(tmp_path, table)).problem.sources[0].value(2) == 3


@pytest.mark.parametrize(
    ("written", "instead", "told"),
    [
        ('field = "p"\nposition = [12', 'field = "q"\nposition = [12', "no field 'q'"),
        ("[12, 13.5]", "[12, 39]", "must be within"),
        ("[12, 13.5]", "[12]", "the source at (12.0,) needs 2 coordinates (y, x)"),
        ("[12, 13.5]", '"here"', "problem.sources[0].position = 'here': expected a list"),
        ("[12, 13.5]", "[12, nan]", "must be a sequence of numbers"),
        ('"sin(pi * step / 2)"', "[1, 2]", "2 values for 4 steps"),
        ('"sin(pi * step / 2)"', '"x"', "the values of source 1: 'x' uses x, but"),
        ('"sin(pi * step / 2)"', '"1 / step"', "is inf in float64 at cell (0)"),
        ('"sin(pi * step / 2)"', '"open(1)"', "unknown function 'open'"),
        ('values = "sin(pi * step / 2)"', "", "lacks the key 'values'"),
        (
            'values = "sin',
            'value = 1\nvalues = "sin',
            "unknown key 'value'; did you mean 'values'?",
        ),
        ("{p = 0,", '{p = "step",', "uses step, which initial values do not have"),
        ("{p = 0,", '{p = "1 +",', "the initial values of 'p': the formula '1 +' is not valid"),
        ("decay_x = 0.5", 'decay_x = "f(x)"', "the parameter decay_x: the formula"),
        ("decay_x = 0.5", 'decay_x = "step"', "has 4 values along x"),
    ],
)
def test_sources_and_profiles_that_do_not_fit_are_told(written, instead, told, tmp_path):
    assert written in POINTS
    with pytest.raises((DefinitionError, UsageError)) as caught:
        load_job(write(tmp_path, POINTS.replace(written, instead, 1)))
    assert told in str(caught.value)
