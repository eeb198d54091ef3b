"""`outgrid gradient`: what a job asks for is what a script gets, byte for byte."""

import json

import numpy as np
import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import Stopped
from outgrid.job import load_job
from outgrid.reversal.asked import asked

JOB = """
[problem]
stencil = "wave:4"
shape = [20, 22]
steps = 12
[problem.initial]
u = "exp(-((x - 11)**2 + (y - 8)**2) / 9)"
c = "model.npy"
[[problem.receivers]]
field = "u"
position = [12, 12.5]
[run]
memory = "300MiB"
[gradient]
wrt = ["c", "u"]
observed = "traces.npy"
"""
SHAPE, STEPS = (20, 22), 12


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The path of a job file, from another folder than its own."""
    rng = np.random.default_rng(3)
    np.save(tmp_path / "model.npy", rng.uniform(0.1, 0.2, SHAPE))
    np.save(tmp_path / "traces.npy", rng.normal(size=(STEPS, 1)))
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "job.toml"


def by_script(job, out):
    problem, folder = load_job(job).problem, job.parent
    objective = og.LeastSquares(str(folder / "traces.npy"))
    return og.gradient(problem, objective, wrt=["c", "u"], out=out, memory="300MiB")


def test_the_gradient_of_a_job_is_that_of_a_script(job, tmp_path, capsys):
    right = by_script(job, tmp_path / "script")
    assert main(["gradient", str(job), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["value"] == right.value
    for name in ("c", "u"):
        assert told["fields"][name] == str(tmp_path / "job.gradient" / f"{name}.npy")
        assert np.load(told["fields"][name]).tobytes() == np.asarray(right[name]).tobytes()
    assert main(["gradient", str(job), "--quiet"]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["gradient", str(job), "--quiet", "--continue"]) == 0
    out = capsys.readouterr().out
    assert f"{right.value:.9g}" in out
    assert "job.gradient/c.npy" in out


def test_settings_choose_a_strategy_and_change_no_byte(job, tmp_path, capsys):
    right = by_script(job, tmp_path / "script")
    for name, place in (("recompute", "--out {}"), ("multistage", "--set out={}")):
        out = tmp_path / name
        place = place.format(out).split(" ", 1)
        given = ["--set", f"gradient.adjoint={name}", "--set", "depth=2", *place]
        assert main(["gradient", str(job), "--json", "--quiet", *given]) == 0
        assert json.loads(capsys.readouterr().out)["adjoint"] == name
        assert np.load(out / "c.npy").tobytes() == np.asarray(right["c"]).tobytes()


def test_a_plan_prints_every_strategy_and_writes_nothing(job, tmp_path, capsys):
    assert main(["gradient", str(job), "--plan"]) == 0
    told = capsys.readouterr().out
    assert main(["plan", str(job)]) == 0
    planned = capsys.readouterr().out
    for name in ("history", "recompute", "multistage"):
        for text in (told, planned):
            (line,) = (line for line in text.splitlines() if f"{name}: " in line)
            assert "of disk" in line
            assert "steps forward" in line
    assert main(["gradient", str(job), "--plan", "--json"]) == 0
    strategies = json.loads(capsys.readouterr().out)["strategies"]
    assert [one["name"] for one in strategies] == ["history", "recompute", "multistage"]
    assert all(one["disk_bytes"] > 0 for one in strategies)
    assert main(["plan", str(job), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["gradient"]["strategies"]] == [
        one["name"] for one in strategies
    ]
    assert main(["plan", str(job), "--stop-after", "2h"]) == 2
    told = capsys.readouterr()
    assert "do not support stop_after" in told.err
    assert not told.out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "job.toml",
        "model.npy",
        "traces.npy",
    ]


def test_all_objectives_can_be_written(job, tmp_path):
    table = (
        JOB.partition("[gradient]")[0]
        + """
[[problem.snapshots]]
field = "u"
every = 3
[gradient]
wrt = ["c"]
final = { u = "end.npy" }
snapshots = [""]
chunk = 4
every = 2
history = "same"
"""
    )
    job.write_text(table)
    objective, given = asked(load_job(job))
    assert objective.final == {"u": tmp_path / "end.npy"}
    assert objective.snapshots == [None]
    assert given == {
        "wrt": ("c",),
        "chunk": 4,
        "every": 2,
        "history": "same",
        "memory": 300 << 20,
    }
    job.write_text(table.partition("final")[0] + 'total = "energy"\nweights = [1.0, 2.0]\n')
    assert asked(load_job(job))[0] == og.Total("energy", (1.0, 2.0))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('wrt = ["c", "u"]\n', "", "lacks the key 'wrt'"),
        ('observed = "traces.npy"', "", "must have one objective"),
        ('observed = "traces.npy"', 'observed = "no.npy"', "no.npy"),
        ('observed = "traces.npy"', 'observe = "traces.npy"', "unknown key 'observe'"),
        ("[gradient]", '[gradient]\ntotal = "energy"', "must have one objective"),
        ("[gradient]", "[gradient]\nweights = [1.0]", "weights in"),
        ("[gradient]", '[gradient]\nadjoint = "all"', "adjoint"),
        ("[gradient]", '[gradient]\nhistory = "float8"', "history"),
        ("[run]", '[run]\nstop_after = "2h"', "do not support stop_after"),
        ("[gradient]", "[gradients]", "unknown key 'gradients'"),
    ],
)
def test_what_a_gradient_cannot_be_made_of_is_said(job, old, new, words, capsys):
    job.write_text(JOB.replace(old, new))
    assert main(["gradient", str(job), "--quiet"]) in (2, 4)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [Stopped("stopped by SIGUSR; 2 steps; more", ""), KeyboardInterrupt]
)
def test_a_gradient_that_is_stopped_names_the_command_that_continues(
    error, job, tmp_path, monkeypatch, capsys
):
    def stopped(*_):
        raise error

    monkeypatch.setattr("outgrid.gradients.write_coefficients", stopped)
    out = tmp_path / "slope"
    given = ["--set", "gradient.every=2", "--out", str(out)]
    assert main(["gradient", str(job), "--quiet", *given]) == 75
    told = capsys.readouterr().err
    goes_on = f"outgrid gradient {job} --out {out} --set gradient.every=2 --continue continues"
    assert f"; what is finished is kept; {goes_on} the gradient\n" in told


def test_a_job_without_the_table_is_refused(job, capsys):
    job.write_text(JOB.partition("[gradient]")[0])
    assert main(["gradient", str(job)]) == 2
    assert "has no table [gradient]" in capsys.readouterr().err
