from pathlib import Path

import pytest

from outgrid.errors import DefinitionError, UsageError
from outgrid.job import load_job, run_options
from outgrid.machine import memory_limit_bytes
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.problem import Boundary

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
    assert job.problem.initial == {"u": tmp_path / "start.npy"}
    assert job.options.memory_bytes == 64 << 20
    assert job.options.scratch == tmp_path / "fast"
    assert job.options.out == Path("/results")


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


def test_options_without_a_job():
    assert run_options({}).memory_bytes == memory_limit_bytes() // 2
    assert run_options({"memory": "1GiB", "depth": 3}).depth == 3
    with pytest.raises(UsageError, match="did you mean 'depth'"):
        run_options({"dept": 3})


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
