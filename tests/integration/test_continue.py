"""`outgrid run --continue`: starts a run, resumes it, or finds it finished."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.errors import Stopped, UsageError
from outgrid.execution import Execution
from outgrid.record import RECORD_NAME
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.resumption import resumption
from outgrid.runs.standing import what_is_asked

JOB = """
[problem]
stencil = "wave:4"
shape = [48, 96, 64]
dtype = "float32"
steps = 80
initial = {u = "exp(-((x - 30)**2 + (y - 30)**2 + (z - 20)**2) / 40)", c = 0.1}
[run]
memory = "256MiB"
tier = "direct"
depth = 4
slab_planes = 2
threads = 1
commit_every = 0
"""
STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}


def heat(k=0.1, **others):
    shape = (40, 16, 33)
    given = {"steps": 12, "parameters": {"k": k}, "initial": {"u": "x + y * z"}}
    return og.Problem("heat7", shape, **(given | others))


def fields(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


def start(arguments):
    command = [sys.executable, "-m", "outgrid", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_one_command_brings_a_run_to_its_end_however_often_it_is_killed(tmp_path):
    """At random moments of its whole life: before its initial values are complete, too."""
    job, out = tmp_path / "job.toml", tmp_path / "job.run"
    job.write_text(JOB)
    assert main(["run", str(job), "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    chance, kills = random.Random(28), 0
    for _ in range(3):
        process = start(["run", job, "--continue", "--quiet"])
        if chance.random() < 0.5:  # as soon as there is anything
            while process.poll() is None and not (out / MANIFEST_NAME).exists():
                time.sleep(0.0005)
            time.sleep(chance.random() * 0.02)
        else:
            time.sleep(0.3 + chance.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills
    for _ in range(2):  # to its end, and once more
        process = start(["run", job, "--continue", "--quiet"])
        _, words = process.communicate()
        assert process.returncode == 0, words
    assert fields(out) == fields(tmp_path / "whole")


@pytest.mark.parametrize(
    ("out", "more", "begun"),
    [
        ("job.h5", "", "job.run/job.h5*"),
        ("job.run", "pyramid = true", "job.run/*.pyramid/1/c/0/0/*"),
    ],
)
def test_a_run_that_leaves_more_than_planes_is_killed(tmp_path, out, more, begun):
    """While it makes one file of its results, or levels of them, and at any other moment."""
    pytest.importorskip("h5py")
    job, whole = tmp_path / "job.toml", tmp_path / "whole" / out
    job.write_text(JOB.replace("steps = 80", "steps = 40") + more)
    whole.parent.mkdir()
    assert main(["run", str(job), "--out", str(whole), "--quiet"]) == 0
    chance, given = random.Random(27), ["run", job, "--continue", "--quiet", "--out"]
    for number in range(3):
        process = start([*given, tmp_path / out])
        while process.poll() is None and number and not [*tmp_path.glob(begun)]:
            time.sleep(0.0005)
        time.sleep(chance.random() * (0.01 if number else 1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = start([*given, tmp_path / out])
    _, words = process.communicate()
    assert process.returncode == 0, words
    found, wanted = og.open(tmp_path / out), og.open(whole)
    assert {name: np.asarray(found[name]).tobytes() for name in found} == {
        name: np.asarray(wanted[name]).tobytes() for name in wanted
    }
    for path in wanted.out.glob("*.pyramid/[1-9]/c/0/0/0"):
        assert (found.out / path.relative_to(wanted.out)).read_bytes() == path.read_bytes()
    assert not [*tmp_path.rglob("*.new")]


def test_a_run_begins_goes_on_and_is_returned(tmp_path, capsys):
    out = tmp_path / "run"
    whole = og.run(heat(), out=tmp_path / "whole", **STREAMED)
    with pytest.raises(Stopped):
        og.run(heat(), out=out, resume=True, stop_after=1e-9, **STREAMED)
    found = og.run(heat(), out=out, resume=True, **(STREAMED | {"depth": 2}))
    assert fields(out) == fields(whole.out)
    assert len(found.record.parts) == 2
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = og.run(heat(), out=out, resume=True, progress=True, **STREAMED)
    assert again.record.started == found.record.started
    assert again.record.checksums == found.record.checksums
    assert "is finished" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"k": 0.05}, r"problem.parameters.k was 0.1 and is now 0.05"),
        ({"steps": 13}, r"problem.steps was 12 and is now 13"),
        ({"initial": {"u": "x"}}, r'initial.u.expression was "x \+ y \* z" and is now "x"'),
        ({"boundary": "periodic"}, r"problem.boundary"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_problem_is_refused_with_what_differs(other, words, finished, tmp_path):
    out = tmp_path / "run"
    if finished:
        og.run(heat(), out=out, **STREAMED)
    else:
        with pytest.raises(Stopped):
            og.run(heat(), out=out, stop_after=1e-9, **STREAMED)
    before = sorted(out.rglob("*"))
    with pytest.raises(UsageError, match=words):
        og.run(heat(**other), out=out, resume=True, **STREAMED)
    assert sorted(out.rglob("*")) == before


def test_a_run_of_an_earlier_version_that_named_a_vector_whole_is_the_same(tmp_path):
    @og.stencil
    def spread(v: og.Vector, *, k):
        return {"v": {axis: v[axis] + k * og.laplacian(v[axis]) for axis in v}}

    boundary = {"kind": "neumann", "fields": {"v": {"x-": 1.0}}}
    problem = og.Problem(spread, (16, 33), "float64", 2, {"k": 0.1}, boundary, {"v": 0.5})
    begun = og.run(problem, memory="200MiB", out=tmp_path / "run")
    written = json.loads((begun.out / RECORD_NAME).read_text())
    fields = written["problem"]["boundary"]["fields"]
    assert fields.keys() == {"v_y", "v_x"}
    written["problem"]["boundary"]["fields"] = {"v": fields["v_x"]}
    (begun.out / RECORD_NAME).write_text(json.dumps(written))
    again = og.run(problem, memory="200MiB", out=begun.out, resume=True)
    assert again.record.started == begun.record.started
    with pytest.raises(UsageError, match=r"boundary.fields was .*v_x"):
        og.run(problem.replace(boundary="neumann"), memory="200MiB", out=begun.out, resume=True)


def test_nothing_durable_begins_anew_and_a_run_under_way_is_left_alone(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Execution, "fill", lambda *given, **others: os._exit(9))
        if not (child := os.fork()):
            gc.freeze()  # threads of what was not closed yet are not here to be waited for
            og.run(heat(), out=out, progress=False, **STREAMED)
        os.waitpid(child, 0)
    assert json.loads((out / MANIFEST_NAME).read_text())["steps_done"] == -1
    with RunLock(out), pytest.raises(UsageError, match="in use by process"):
        og.run(heat(), out=out, resume=True, **STREAMED)
    with pytest.raises(UsageError, match=r"parameters.k was 0.1"):
        og.run(heat(0.05), out=out, resume=True, **STREAMED)
    found = og.run(heat(), out=out, resume=True, **STREAMED)
    assert fields(out) == fields(og.run(heat(), out=tmp_path / "whole", **STREAMED).out)
    assert len(found.record.parts) == 1


def test_a_run_whose_fields_were_in_memory_begins_anew(tmp_path):
    out, swap = tmp_path / "run", {"memory": "200MiB", "tier": "swap", "threads": 1}
    if not (child := os.fork()):
        gc.freeze()  # threads of what was not closed yet are not here to be waited for
        og.run(heat(steps=4000), out=out, progress=lambda seen: os._exit(9), **swap)
        os._exit(0)
    os.waitpid(child, 0)
    found = og.run(heat(steps=40), out=tmp_path / "other", resume=True, **swap)
    assert found.record.steps == 40
    if (out / MANIFEST_NAME).exists():
        assert og.run(heat(steps=4000), out=out, resume=True, **swap).record.steps == 4000


def test_options_that_differ_are_told_and_the_others_stay(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        og.run(heat(), out=out, stop_after=1e-9, **STREAMED)
    from outgrid.config import RunOptions

    def asked(**options):
        return what_is_asked(out, RunOptions.of(out=out, **(STREAMED | options)))

    assert asked() == {"memory": "200MiB"} or asked() == {}
    assert asked(depth=2)["depth"] == 2
    assert asked(depth=None)["depth"] == "auto"
    assert asked(stop_after="2h")["stop_after"] == 7200
    assert asked(metrics=tmp_path / "m.prom")["metrics"] == tmp_path / "m.prom"
    og.run(heat(), out=out, resume=True, **STREAMED, metrics=tmp_path / "m.prom")
    assert (tmp_path / "m.prom").exists()


def test_another_place_for_files_is_refused(tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        og.run(heat(), out=out, stop_after=1e-9, **STREAMED)
    from outgrid.config import RunOptions

    def asked(**options):
        return what_is_asked(out, RunOptions.of(out=out, **(STREAMED | options)))

    assert main(["resume", str(out), "--set", f"out={tmp_path / 'other'}"]) == 2
    words = f"is for new runs: the one that is resumed stays in {out}; leave out out"
    assert words in capsys.readouterr().err
    assert asked(scratch=tmp_path / "flash")["scratch"] == [str(tmp_path / "flash")]
    with pytest.raises(UsageError, match="the files of the run are in"):
        og.run(heat(), out=out, resume=True, **STREAMED, scratch=tmp_path / "flash")
    assert main(["resume", str(out), "--quiet", "--set", f"out={out}"]) == 0


def test_one_file_of_results_is_there_in_the_end_or_refused(tmp_path):
    pytest.importorskip("h5py")
    for out in ("plain.run", "whole.h5"):
        og.run(heat(), out=tmp_path / out, **STREAMED)
    with pytest.raises(UsageError, match=r"finished, and its results are not in plain\.h5: make"):
        og.run(heat(), out=tmp_path / "plain.h5", resume=True, **STREAMED)
    (tmp_path / "whole.h5").unlink()
    og.run(heat(), out=tmp_path / "whole.h5", resume=True, **STREAMED)
    assert (tmp_path / "whole.h5").samefile(tmp_path / "whole.run" / "whole.h5")


def test_working_files_stay_where_they_are_if_nothing_is_said_of_them(tmp_path):
    job, out, flash = tmp_path / "job.toml", tmp_path / "run", tmp_path / "flash"
    job.write_text(
        '[problem]\nstencil = "heat7"\nshape = [20, 20, 20]\nsteps = 12\ninitial = {u = "x"}\n'
        '[problem.parameters]\nk = 0.1\n[run]\ntier = "direct"\ndepth = 2\nmemory = "200MiB"\n'
    )
    command = ["run", str(job), "--out", str(out), "--continue", "--quiet"]
    assert main([*command, "--scratch", str(flash), "--stop-after", "0.000001"]) == 75
    assert list(flash.iterdir())
    assert main(command) == 0
    assert not (out / "scratch").exists()


def test_a_result_that_is_gone_is_named(tmp_path):
    out = tmp_path / "run"
    og.run(heat(), out=out, **STREAMED)
    (out / "u.npy").unlink()
    with pytest.raises(UsageError, match=r"its result u.npy is missing"):
        og.run(heat(), out=out, resume=True, **STREAMED)


def test_to_continue_and_to_overwrite_exclude_each_other(tmp_path, capsys):
    with pytest.raises(UsageError, match="give only one of the two"):
        og.run(heat(), out=tmp_path / "run", resume=True, overwrite=True)
    with pytest.raises(SystemExit):
        main(["run", "job.toml", "--continue", "--overwrite"])
    assert "not allowed with" in capsys.readouterr().err


def test_pieces_of_ranks_go_on_and_are_refused_alike(tmp_path):
    pytest.importorskip("mpi4py")
    job, out = tmp_path / "job.toml", tmp_path / "job.run"
    job.write_text(JOB)
    assert main(["run", str(job), "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    mpiexec = Path(sys.executable).parent / "mpiexec"
    environment = os.environ | {"MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1"}

    def launched(*arguments):
        command = [mpiexec, "-n", "2", sys.executable, "-m", "outgrid", "run", job]
        return subprocess.Popen(
            [*map(str, command), "--continue", "--quiet", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = launched("--set", "stop_after=1e-9", "--set", "commit_every=auto")
    _, words = first.communicate()
    assert first.returncode == 75, words
    for _ in range(2):
        process = launched("--set", "commit_every=auto")
        _, words = process.communicate()
        assert process.returncode == 0, words
    assert og.open(out)["u"][:].tobytes() == og.open(tmp_path / "whole")["u"][:].tobytes()
    job.write_text(JOB.replace("steps = 80", "steps = 81"))
    process = launched("--set", "commit_every=auto")
    _, words = process.communicate()
    assert process.returncode == 2
    assert "problem.steps was 80 and is now 81" in words


def test_the_road_says_what_it_does(tmp_path):
    """`resumption` is told what differs only: what a run has and means nothing now is left out."""
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        og.run(heat(), out=out, stop_after=1e-9, **STREAMED)
    from outgrid.comm import Serial
    from outgrid.config import RunOptions

    options = RunOptions.of(out=out, **(STREAMED | {"depth": 2}))
    found = resumption(out, what_is_asked(out, options), Serial())
    assert any(change.startswith("depth 3 -> 2") for change in found.changes)
    assert pipeline.run_or_resume(heat(), options).record.steps == 12
