from pathlib import Path

import numpy as np
import pytest

from outgrid.config import RunOptions, parse_settings
from outgrid.errors import Error, UsageError
from outgrid.job import load_job, read_job_file
from outgrid.stencil.boundary import Boundary

JOB = """
[problem]
stencil = "heat7"
shape = [34, 66, 64]
dtype = "float32"
steps = 8
boundary = "dirichlet"
[problem.parameters]
k = 0.1
[problem.initial]
u = "start.npy"
[run]
memory = "64MiB"
scratch = "fast"
depth = 4
"""


@pytest.fixture
def job(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write


def test_a_job_file_is_decoded_whole(job):
    problem, run = read_job_file(job(JOB))
    assert problem["shape"] == (34, 66, 64)
    assert problem["parameters"] == {"k": 0.1}
    assert problem["initial"] == {"u": "start.npy"}
    assert run["depth"] == 4


def test_the_run_table_may_be_left_out(job):
    _, run = read_job_file(job(JOB.partition("[run]")[0]))
    assert run == {}


def test_boundary_may_be_a_table(job):
    text = JOB.replace('boundary = "dirichlet"', 'boundary = {kind = "dirichlet", value = 1}')
    problem, _ = read_job_file(job(text))
    assert problem["boundary"] == Boundary("dirichlet", 1.0)


def test_settings_replace_entries_of_the_run_table(job):
    settings = parse_settings(["depth=7", "scratch=/nvme", 'engine = "aio"', "preview=true"])
    _, run = read_job_file(job(JOB), settings)
    assert run == {
        "memory": "64MiB",
        "depth": 7,
        "scratch": "/nvme",
        "engine": "aio",
        "preview": True,
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("depth = 4", "dept = 4", ["job.toml", "[run]", "'dept'", "did you mean 'depth'"]),
        ("steps = 8", "setps = 8", ["[problem]", "'setps'", "did you mean 'steps'"]),
        ("steps = 8", "steps = 8\nmemory = 1", ["'memory'", "belongs in [run]"]),
        ("[run]", "[runs]", ["'runs'", "did you mean 'run'"]),
        ('boundary = "dirichlet"', 'boundary = {kind = "frozen", vaule = 1}', ["'vaule'", "value"]),
        ("steps = 8", "", ["[problem]", "'steps'"]),
        ("steps = 8", "steps = 8.5", ["problem.steps = 8.5", "expected a whole number"]),
        ("[34, 66, 64]", '[34, "66", 64]', ["problem.shape[1] = '66'", "expected a whole number"]),
        ('"float32"', '"flaot32"', ["problem.dtype = 'flaot32'", "did you mean 'float32'"]),
        ("depth = 4", 'scheme = "skew"', ["run.scheme = 'skew'", "skewed, plain"]),
        ("steps = 8", "steps = ", ["not TOML", "line"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_cure(job, old, new, words):
    with pytest.raises(Error) as caught:
        load_job(job(JOB.replace(old, new)))
    for word in ["job.toml", *words]:
        assert word in str(caught.value)


def test_a_missing_job_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file"):
        read_job_file(tmp_path / "nowhere.toml")


def test_a_setting_needs_a_key_and_a_value():
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_settings(["depth"])


def test_options_from_a_table_resolve_paths_sizes_and_defaults(job):
    _, table = read_job_file(job(JOB))
    options = RunOptions.of_table(table, Path("/jobs"))
    assert options.memory_bytes == 64 << 20
    assert options.scratch == Path("/jobs/fast")
    assert options.out is None
    assert options.scheme is None
    assert options.depth == 4


def test_options_from_keywords():
    options = RunOptions.of(
        memory="1GiB",
        scratch=Path("/nvme"),
        scheme=None,
        depth=None,
        preview=True,
        require="direct",
    )
    assert options == RunOptions(
        memory_bytes=1 << 30,
        scratch=Path("/nvme"),
        places=(Path("/nvme"),),
        preview=512,
        require=("direct",),
    )
    assert RunOptions.of(memory=5 << 20, require=["io_uring"]).require == ("io_uring",)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"dpeth": 4}, ["'dpeth'", "did you mean 'depth'"]),
        ({"depth": 0}, ["depth = 0", "at least 1"]),
        ({"depth": "4"}, ["depth = '4'", "a whole number"]),
        ({"threads": -1}, ["threads = -1", "at least 1"]),
        ({"request_bytes": 5000}, ["5000", "multiple of 4096", "such as 4096"]),
        ({"require": "io_urin"}, ["'io_urin'", "did you mean 'io_uring'"]),
        ({"preview": -3}, ["preview = -3"]),
        ({"memory": "1 gib of"}, ["'1 gib of'", "1GiB"]),
    ],
)
def test_bad_options_say_value_and_bound(keywords, words):
    with pytest.raises(UsageError) as caught:
        RunOptions.of(**{"memory": "1GiB", **keywords})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dept": 8}, ["unknown option 'dept'; did you mean 'depth'"]),
        ({"xyzzy": 8}, ["unknown option 'xyzzy'; did you mean ", " or "]),
        ({"depth": "8"}, ["depth = '8': expected a whole number"]),
        ({"watch": "no"}, ["watch = 'no': expected true or false"]),
        ({"depth": 0}, ["depth = 0: it must be at least 1"]),
        ({"memory": [1]}, ["memory = [1]: expected a whole number or a number or text"]),
        ({"out": 3}, ["out must be a string or a Path, not 3"]),
    ],
)
def test_keywords_are_told_in_words_of_their_own(given, words):
    with pytest.raises(UsageError) as caught:
        RunOptions.of(**({"memory": "1GiB"} | given))
    said = str(caught.value)
    assert [word for word in words if word not in said] == []
    assert len(said) < 120
    assert "run options" not in said
    assert "null" not in said


def test_numbers_of_numpy_are_numbers():
    options = RunOptions.of(memory=np.int64(2**30), depth=np.int32(8), stop_after=np.float32(60))
    assert (options.memory_bytes, options.depth, options.stop_after_seconds) == (2**30, 8, 60.0)
    assert type(options.depth) is int


@pytest.mark.parametrize("name", ["a/heat.TIF", "heat.nii.gz", "u.npy"])
def test_results_are_no_file(name):
    with pytest.raises(UsageError, match=f"export RUN --to {name}"):
        RunOptions.of(memory="1GiB", out=name)
    assert RunOptions.of(memory="1GiB", out="heat.zarr").out == Path("heat.zarr")


@pytest.mark.parametrize("name", ["heat.h5", "a/heat.VTKHDF", "a.b.nc"])
def test_a_file_for_the_results_lies_beside_their_folder(name):
    options = RunOptions.of(memory="1GiB", out=name)
    assert options.out == Path(name).with_suffix(".run")
    assert options.file == Path(name).name
    assert options.kept(options.out)["file"] == options.file
    for wrong in ("a/heat.h5", "heat.npy", "heat"):
        with pytest.raises(UsageError, match="beside the folder of results"):
            RunOptions.of(memory="1GiB", file=wrong)
