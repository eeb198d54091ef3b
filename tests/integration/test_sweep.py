"""`outgrid sweep`: the runs of a job with several values, in one table."""

import csv
import json

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.errors import Stopped, UsageError
from outgrid.sweeping import parse_varied

JOB = """
[problem]
stencil = "stencil.py:diffuse"
shape = [30, 24]
steps = 6
parameters = {k = 0.2}
initial = {u = "x + y * y"}
[run]
memory = "200MiB"
tier = "direct"
threads = 1
"""
STENCIL = """
import outgrid as og

@og.stencil
def diffuse(u, *, k):
    return {"u": u + k * og.laplacian(u), "total": og.sum(u)}
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "stencil.py").write_text(STENCIL)
    return tmp_path / "job.toml"


def swept(job, capsys, *more, code=0):
    assert main(["sweep", str(job), "--quiet", "--json", *more]) == code
    return json.loads(capsys.readouterr().out)


def test_all_combinations_are_run_and_are_in_one_table(job, capsys):
    more = ("--set", "problem.parameters.k=0.1,0.2", "--set", "depth=1,2")
    rows = swept(job, capsys, *more)
    assert [(row["k"], row["depth"]) for row in rows] == [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    for row in rows:
        result = og.open(f"job.sweep/{row['folder']}")
        assert result.record.problem["parameters"] == {"k": row["k"]}
        assert row["total"] == result.reductions["total"][-1]
        assert (row["state"], row["steps"]) == ("finished", 6)
    assert rows[0]["total"] == rows[1]["total"]  # depth changes nothing
    with open("job.sweep/sweep.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["folder"] for row in table] == [row["folder"] for row in rows]
    assert [float(row["total"]) for row in table] == [row["total"] for row in rows]


def test_the_same_command_goes_on_and_repeats_nothing(job, capsys, monkeypatch):
    first = swept(job, capsys, "--set", "problem.parameters.k=0.1")
    written = og.open("job.sweep/k=0.1").path("u").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        run = pipeline.run_or_resume

        def stopping(problem, options, progress, stop, **others):
            if problem.parameters["k"] == 0.3:
                stop.request("a test")
            return run(problem, options, progress, stop, **others)

        patch.setattr(pipeline, "run_or_resume", stopping)
        code = main(["sweep", str(job), "--quiet", "--set", "problem.parameters.k=0.1,0.2,0.3"])
        assert code == Stopped.exit_code
    assert "outgrid resume" in capsys.readouterr().err
    rows = swept(job, capsys, "--set", "problem.parameters.k=0.1,0.2,0.3")
    assert rows[0] == first[0]
    assert og.open("job.sweep/k=0.1").path("u").stat().st_mtime_ns == written
    assert [row["state"] for row in rows] == ["finished"] * 3
    assert len(og.open("job.sweep/k=0.3").record.parts) == 2


def test_a_run_that_fails_is_a_row_and_the_others_go_on(job, capsys):
    rows = swept(job, capsys, "--set", "problem.parameters.k=1e300,0.1", code=4)
    assert [row["state"] for row in rows] == ["failed", "finished"]
    assert "became" in rows[0]["ended"]
    assert main(["sweep", str(job), "--quiet", "--set", "problem.parameters.k=0.1"]) == 0
    assert "k    state     steps" in capsys.readouterr().out


@pytest.mark.parametrize("listed", [False, True])
def test_each_run_has_its_own_working_files(listed, job, capsys, tmp_path):
    places = [tmp_path / "fast", tmp_path / "other"][: 1 + listed]
    job.write_text(JOB + f"scratch = {[str(place) for place in places]}\n")
    given = ("--set", "problem.parameters.k=1e300,0.1,0.2")
    rows = swept(job, capsys, *given, code=4)
    assert [row["state"] for row in rows] == ["failed", "finished", "finished"]
    for place in places:
        assert [path.name for path in place.iterdir()] == ["k=1e+300"]
    assert swept(job, capsys, *given, code=4) == rows  # what is kept there is gone on with
    found = swept(job, capsys, *given, "--set", "watch=false")
    assert [row["state"] for row in found] == ["finished"] * 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "a parameter sweep must have 1 to"),
        (("--set", "k"), "has no values"),
        (("--set", "problem.steps=1,1"), "lists 1 twice"),
        (("--set", "depth=1", "--set", "depth=2"), "names depth twice"),
        (("--set", "problem.stepps=1,2"), "did you mean"),
        (("--set", "problem.steps.more=1,2"), "problem.steps is not a table"),
        (("--set", "problem.parameters.q=1,2"), "q"),
        (("--set", "out=a,b"), "out is not a value of a sweep"),
        (("--set", "file=a.h5"), "names one file for all runs"),
    ],
)
def test_mistakes_are_told_before_anything_runs(given, words, job, capsys):
    assert main(["sweep", str(job), *given]) == 2
    assert words in capsys.readouterr().err
    assert not job.with_suffix(".sweep").exists()


def test_values_are_toml_or_text():
    assert parse_varied(["a=[1, 2],[3, 4]"]) == {"a": [[1, 2], [3, 4]]}
    assert parse_varied(["tier=direct,mmap"]) == {"tier": ["direct", "mmap"]}
    with pytest.raises(UsageError):
        parse_varied(["a=" + "[" * 100])


def test_a_run_takes_entries_of_the_problem(job):
    given = ["--set", "problem.parameters.k=0.1", "--set", "problem.steps=3"]
    assert main(["run", str(job), "--quiet", *given]) == 0
    problem = og.open("job.run").record.problem
    assert (problem["parameters"], problem["steps"]) == ({"k": 0.1}, 3)
    assert np.isfinite(og.open("job.run")["u"]).all()
