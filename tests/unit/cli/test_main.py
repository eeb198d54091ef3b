import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outgrid import cli
from outgrid.cli import MODULES, VERBS, main

JOB = """
[problem]
stencil = "heat5"
shape = [40, 64]
steps = 6
parameters = {k = 0.2}
initial = {u = "exp(-((x - 30)**2 + (y - 20)**2) / 30)"}
[run]
memory = "256MiB"
depth = 3
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "heat.toml"
    path.write_text(JOB)
    return path


def test_every_verb_has_a_module_that_explains_itself(capsys):
    for verb in VERBS:
        assert importlib.import_module(f"outgrid.cli.{MODULES.get(verb, verb)}").__doc__.startswith(
            f"`outgrid {verb}"
        )
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
    assert "JOB.toml" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["ru"], ["plan"], ["plan", "a.toml", "--depht"]])
def test_wrong_usage_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: outgrid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "did you mean 'run'?"),
        (
            ["plan", "a.toml", "--memroy", "1GiB"],
            "unknown option --memroy; did you mean '--memory'",
        ),
        (["plan", "a.toml", "--memroy=1GiB"], "unknown option --memroy; did you mean '--memory'"),
        (["plan", "a.toml", "b.toml"], "unexpected argument 'b.toml'"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is_near(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("verb", cli.SEPARATE)
def test_a_verb_that_is_not_installed_says_where_it_is(verb, capsys, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    with pytest.raises(SystemExit) as ended:
        main([verb, "core", "--quick"])
    assert ended.value.code == 2
    assert cli.SEPARATE[verb] in capsys.readouterr().err


def test_another_package_adds_a_verb_and_replaces_none(tmp_path, capsys, monkeypatch):
    (tmp_path / "weigh.py").write_text(
        "def configure(parser): parser.add_argument('grams', type=int)\n"
        "def run(arguments): print(arguments.grams); return 1\n"
    )
    (tmp_path / "scales-1.dist-info").mkdir()
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: scales\nVersion: 1\nSummary: weigh a grid\n",
        "entry_points.txt": "[outgrid.commands]\nweigh = weigh\nplan = weigh\n",
    }
    for name, text in files.items():
        (tmp_path / "scales-1.dist-info" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["weigh", "7"]) == 1
    assert capsys.readouterr().out == "7\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert re.search(r"weigh +weigh a grid", told)
    assert VERBS["plan"] in told


def test_a_plan_needs_no_input_and_says_which_the_run_would_refuse(job, capsys):
    job.write_text(JOB.replace('"exp(-((x - 30)**2 + (y - 20)**2) / 30)"', '"start.npy"'))
    assert main(["plan", str(job), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["depth"] == 3
    assert "a run would fail: the initial values of 'u'" in captured.err
    np.save(job.parent / "start.npy", np.zeros((4, 6)))
    assert main(["plan", str(job)]) == 3
    assert "has shape (4, 6); the field has (40, 64)" in capsys.readouterr().err


def test_a_plan_is_for_one_rank_at_least(job, capsys):
    assert main(["plan", str(job), "--ranks", "0"]) == 2
    assert "--ranks must be at least 1, not 0" in capsys.readouterr().err


def test_plan_prints_text_or_json(job, capsys):
    assert main(["plan", str(job)]) == 0
    assert "heat5 on 40 x 64 float64, 6 steps" in capsys.readouterr().out
    assert main(["plan", str(job), "--json", "--set", "depth=2"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["scheme"], plan["depth"]) == ("skewed", 2)
    for key in ("slab_planes", "window_bytes", "disk_bytes", "read_bytes", "written_bytes"):
        assert plan[key] > 0
    assert plan["predicted_seconds"] > 0
    assert not (job.parent / "heat.run").exists()


def test_run_leaves_fields_record_and_a_summary(job, tmp_path, capsys):
    out = tmp_path / "results"
    assert main(["run", str(job), "--out", str(out)]) == 0
    assert "peak" in capsys.readouterr().out
    assert np.load(out / "u.npy", mmap_mode="r").shape == (40, 64)
    assert not (out / "scratch").exists()
    assert main(["show", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fields"] == {"u": "u.npy"}
    assert record["derived"]["io_over_ideal"] == 1.0


def test_run_prints_the_record_as_json_alone(job, capsys):
    assert main(["run", str(job), "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["measured"]["updates"] == 38 * 62 * 6
    assert captured.err == ""
    assert (job.parent / "heat.run/u.npy").exists()


def test_a_run_is_shown_and_reported(job, tmp_path, capsys):
    out = tmp_path / "results"
    main(["run", str(job), "--out", str(out), "--quiet"])
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    assert "GLUP/s" in capsys.readouterr().out
    assert main(["report", str(out)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in paths] == ["summary.txt", "report.html", "u.png"]
    assert all(path.stat().st_size > 0 for path in paths)
    assert main(["show", str(out / "u.npy"), "--picture", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").exists()


def test_a_kernel_is_shown(job, capsys):
    assert main(["show", "kernel", str(job)]) == 0
    assert "outgrid_advance" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("depth = 3", "dept = 3"), 2, "did you mean 'depth'"),
        (("[40, 64]", "[40, 2]"), 2, "extent 2 along x"),
        (('"heat5"', '"heat55"'), 2, "did you mean 'heat5'"),
        (("256MiB", "1MiB"), 3, "1.00 MiB"),
        (('"exp(-((x - 30)**2 + (y - 20)**2) / 30)"', '"none.npy"'), 2, "none.npy"),
    ],
)
def test_a_mistake_is_a_message_and_a_code(job, capsys, change, code, words):
    job.write_text(JOB.replace(*change))
    assert main(["run", str(job)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("outgrid: ")
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert [path.name for path in job.parent.iterdir()] == ["heat.toml"]


def test_debug_shows_where(job, capsys):
    job.write_text(JOB.replace("depth", "dept"))
    assert main(["plan", str(job), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(job, capsys, monkeypatch):
    def interrupt(*arguments, **others):
        raise KeyboardInterrupt

    monkeypatch.setattr("outgrid.pipeline.plan", interrupt)
    assert main(["plan", str(job)]) == 130
    assert capsys.readouterr().err == "outgrid: interrupted\n"


def test_an_interrupt_of_a_run_says_what_is_left_and_how_to_go_on(job, capsys, monkeypatch):
    def interrupt(*arguments, **others):
        raise KeyboardInterrupt

    out = job.parent / "heat.run"
    with monkeypatch.context() as patch:
        patch.setattr("outgrid.execution.fill", interrupt)
        assert main(["run", str(job), "--quiet"]) == 130
    said = capsys.readouterr().err
    assert said == (
        "outgrid: interrupted; it has no durable state: its initial values were not complete\n"
    )
    assert not out.exists()
    kept = f"the initial values are kept, and none of the 6 steps; outgrid resume {out} continues"
    for place in ("execution.stream", "pipeline.known_machine", "cli.resume.resumption"):
        verb = ["resume", str(out)] if out.exists() else ["run", str(job)]
        with monkeypatch.context() as patch:
            patch.setattr(f"outgrid.{place}", interrupt)
            assert main([*verb, "--quiet"]) == 75, place
        assert capsys.readouterr().err == f"outgrid: interrupted; {kept}\n"
    assert main(["resume", str(out), "--quiet"]) == 0


def test_an_interrupted_run_that_was_to_replace_another_does_not_go_on_from_it(
    job, capsys, monkeypatch
):
    def interrupt(*arguments, **others):
        raise KeyboardInterrupt

    assert main(["run", str(job), "--quiet", "--stop-after", "1ms"]) == 75
    capsys.readouterr()
    for option, code in (("--overwrite", 130), ("--continue", 75)):
        with monkeypatch.context() as patch:
            patch.setattr("outgrid.pipeline.known_machine", interrupt)
            assert main(["run", str(job), "--quiet", option]) == code
        assert ("no durable state" in capsys.readouterr().err) == (code == 130)


def test_a_run_that_is_interrupted_while_its_results_are_placed_can_be_resumed(
    job, capsys, monkeypatch
):
    def interrupt(*arguments, **others):
        os.kill(os.getpid(), signal.SIGTERM)

    out = job.parent / "heat.run"
    with monkeypatch.context() as patch:
        patch.setattr("outgrid.runs.state.move", interrupt)
        assert main(["run", str(job), "--quiet"]) == 75
    assert capsys.readouterr().err == (
        f"outgrid: interrupted; 6 of 6 steps are kept; outgrid resume {out} continues\n"
    )
    assert main(["resume", str(out), "--quiet"]) == 0


def test_a_run_imports_nothing_that_draws(job):
    program = (
        "import sys; from outgrid.cli import main; "
        f"main(['run', {str(job)!r}, '--quiet']); "
        "drawn = {'matplotlib', 'rich', 'PIL', 'sympy'} & set(sys.modules); "
        "sys.exit(f'imported {drawn}' if drawn else 0)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


def test_a_reader_that_leaves_early_is_no_error(job):
    command = f"{sys.executable} -m outgrid plan {job} --json | head -c 1"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert finished.stderr == ""
