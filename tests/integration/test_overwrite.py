"""A run that is to overwrite replaces what a former run has made, and nothing else."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import BuildError, InfeasiblePlan, Stopped, StoreError, UsageError
from outgrid.runs.leftovers import leftovers
from outgrid.runs.lock import LOCK_NAME, RunLock
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.storage import Joined, Piece
from outgrid.testing.threads import in_threads

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "threads": 1}


def heat(steps=6, **others):
    given = {"parameters": {"k": 0.1}, "initial": {"u": "x + y * z"}}
    return og.Problem("heat7", (20, 16, 33), steps=steps, **(given | others))


@og.stencil
def watched(u):
    return {"u": 0.5 * u, "total": og.sum(u)}


def everything():
    """A problem that leaves files of all kinds."""
    return og.Problem(
        watched,
        (20, 16, 33),
        steps=6,
        initial={"u": 1.0},
        receivers=[og.Receiver("u", (3, 4, 5))],
        snapshots=[og.Snapshot("u", every=2)],
    )


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def out(tmp_path):
    """A folder with all that a run can leave, and a file that is not of it."""
    folder = tmp_path / "run"
    og.run(everything(), out=folder, preview=8, **STREAMED)
    (folder / "notes.txt").write_text("precious")
    return folder


def test_the_results_of_a_former_run_are_replaced(out, tmp_path):
    with pytest.raises(UsageError, match="replace the former run with --overwrite, or"):
        og.run(heat(), out=out, **STREAMED)
    og.run(heat(), out=out, overwrite=True, **STREAMED)
    og.run(heat(), out=tmp_path / "new", **STREAMED)
    found, wanted = files(out), files(tmp_path / "new")
    assert found.pop("notes.txt") == b"precious"
    assert found.keys() == wanted.keys()
    assert found["u.npy"] == wanted["u.npy"]
    og.run(everything(), out=tmp_path / "empty", overwrite=True, **STREAMED)  # nothing to replace


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        ({"memory": "1MiB"}, InfeasiblePlan, "memory"),
        ({"initial": {"u": Path("none.npy")}}, UsageError, "none.npy"),
        ({"kernel": "int"}, BuildError, "on purpose"),
        ({"disk": 0}, InfeasiblePlan, "free space"),
        ({"metrics": "/typo/heat.prom"}, UsageError, "folder /typo does not exist"),
        ({"engine": "threads", "require": "io_uring"}, StoreError, "requires io_uring"),
        ({"require": "direct"}, StoreError, "refused O_DIRECT.*but the run requires direct"),
        ({"require": "mlock"}, StoreError, "swap the window out.*but the run requires mlock"),
    ],
)
def test_a_run_that_is_not_possible_loses_nothing(spoil, error, words, out, monkeypatch):
    before, given = files(out), STREAMED | spoil
    initial, kernel, disk = (given.pop(name, None) for name in ("initial", "kernel", "disk"))
    problem = heat(**({"initial": initial} if initial else {}))
    if "require" in spoil:

        def refuse(*_, **__):
            raise OSError(1, "not permitted")

        monkeypatch.setattr("outgrid.execute.required.takes_direct", lambda _: False)
        monkeypatch.setattr("outgrid.execute.required.mmap.mmap", refuse)
    if kernel:

        def fail(*_):
            raise BuildError("on purpose")

        monkeypatch.setattr("outgrid.pipeline.compiled", fail)
    if disk is not None:
        monkeypatch.setattr("outgrid.runs.space.free_bytes", lambda _: -(1 << 40))
    with pytest.raises(error, match=words):
        og.run(problem, out=out, overwrite=True, **given)
    assert files(out) == before
    if spoil.keys() & {"metrics", "require"}:
        notes = og.plan(problem, out=out.parent / "new", **given).notes
        assert any(re.search(f"a run would fail: .*{words}", note) for note in notes)


def test_ranks_look_all_of_them_before_anything_is_removed(out, tmp_path):
    other = tmp_path / "fast" / "rank.1"
    other.mkdir(parents=True)
    (other / "owner.json").write_text('{"run": "1", "out": "/elsewhere"}')
    before = files(out)
    options = {"out": out, "memory": "200MiB", "tier": "direct", "threads": 1}

    def run(comm, **more):
        given = RunOptions.of(**options, **more)
        return pipeline.run(heat(), given, comm=comm, overwrite=True)

    with pytest.raises(UsageError, match="is in use by the run in /elsewhere"):
        in_threads(lambda comm: run(comm, scratch=tmp_path / "fast"), 2, random.Random(1))
    assert {name: file for name, file in files(out).items() if name != LOCK_NAME} == before
    for _ in range(2):  # over the run of one process, and over that of ranks
        found = in_threads(run, 2, random.Random(1))
        assert found[0].record.steps == 6


def test_what_the_former_run_takes_counts_as_free(out, monkeypatch):
    needed = og.plan(heat(), out=out.parent / "new", **STREAMED).volume.disk_bytes
    room = og.open(out)["u"].nbytes // 2
    free = needed - room
    monkeypatch.setattr("outgrid.runs.space.free_bytes", lambda _: free)
    with pytest.raises(InfeasiblePlan, match="free space"):
        og.run(heat(), out=out.parent / "new", **STREAMED)
    og.run(heat(), out=out, overwrite=True, **STREAMED)


def test_only_what_the_run_made_is_replaced(out):
    now = time.time()
    os.utime(out / "u.npy", (now + 60, now + 60))
    before = files(out)
    with pytest.raises(UsageError, match=r"u\.npy is not replaced: .* was changed since; choose"):
        og.run(heat(), out=out, overwrite=True, **STREAMED)
    os.utime(out / "u.npy", (now, now))
    (out / "u.npy").unlink()
    (out / "u.npy").symlink_to(out / "notes.txt")
    with pytest.raises(UsageError, match=r"u\.npy is not replaced: .* is not a file; choose"):
        og.run(heat(), out=out, overwrite=True, **STREAMED)
    (out / "u.npy").unlink()
    (out / "u.npy").write_bytes(before["u.npy"])
    record = json.loads(before["record.json"])
    record["fields"] = {"u": "../elsewhere.npy"}
    (out.parent / "elsewhere.npy").write_bytes(b"precious")
    (out / "record.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match=r"names the file \.\./elsewhere\.npy outside"):
        og.run(heat(), out=out, overwrite=True, **STREAMED)
    record["fields"] = {}
    (out / "record.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match=r"u\.npy exists and is not overwritten"):
        og.run(heat(), out=out, overwrite=True, **STREAMED)
    assert (out.parent / "elsewhere.npy").read_bytes() == b"precious"
    assert (out / "u.npy").read_bytes() == before["u.npy"]


@og.stencil
def driven(u, c):
    return u + 0.1 * c


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("read", ["u", "c"])
def test_results_that_are_the_input_are_not_overwritten(out, tmp_path, read, linked):
    before, path = files(out), out / "u.npy"
    if linked:
        path = tmp_path / "linked.npy"
        path.symlink_to(out / "u.npy")
    problem = heat(initial={"u": path})
    if read == "c":
        frames = og.Series(path, step=0)
        problem = og.Problem(driven, (20, 16, 33), steps=3, initial={"u": 1.0, "c": frames})
    with pytest.raises(UsageError, match=f"of '{read}' are read from {path}, a result of the run"):
        og.run(problem, out=out, overwrite=True, **STREAMED)
    assert files(out) == before


def test_a_result_in_pieces_that_is_the_input_is_not_overwritten(out):
    parts = (range(9), range(9, 20))
    pieces = [Piece(out / "u.npy", (0, 0), planes, range(16)) for planes in parts]
    before, problem = files(out), heat(initial={"u": Joined(pieces)})
    with pytest.raises(UsageError, match=r"of 'u' are read from .*u\.npy, a result of the run"):
        og.run(problem, out=out, overwrite=True, **STREAMED)
    assert files(out) == before


def test_an_unfinished_run_is_replaced_and_one_that_runs_is_not(tmp_path):
    out = tmp_path / "run"
    scratch = tmp_path / "work"
    with pytest.raises(Stopped):
        og.run(heat(), out=out, scratch=scratch, stop_after=1e-9, **STREAMED)
    before = files(tmp_path)
    with RunLock(out), pytest.raises(UsageError, match="in use by process"):
        og.run(heat(), out=out, scratch=scratch, overwrite=True, **STREAMED)
    assert {name for name in files(tmp_path) if LOCK_NAME not in name} == before.keys()
    result = og.run(heat(steps=3), out=out, scratch=scratch, overwrite=True, **STREAMED)
    assert result.record.steps == 3
    assert not scratch.exists()
    assert not (out / MANIFEST_NAME).exists()


def test_what_a_resume_leaves_as_well_is_the_runs(tmp_path, cut_off):
    out = tmp_path / "run"
    for _ in range(2):
        cut_off(1, lambda: og.run(heat(), out=out, overwrite=True, **STREAMED))
        cut_off(1, lambda: og.resume(out, preview=8))
        assert (out / "preview.npy.new").exists()
    leftovers(out, delete=True)
    assert files(out) == {}


@pytest.mark.parametrize("name", ["preview.npy", "preview.npy.new"])
def test_a_file_of_others_stays_where_a_resume_would_leave_its_own(tmp_path, cut_off, name):
    out = tmp_path / "run"
    cut_off(1, lambda: og.run(heat(), out=out, **STREAMED))
    (out / name).write_text("precious")
    with pytest.raises(UsageError, match=f"{name} exists, is not of the run in {out}"):
        og.resume(out, preview=8)
    og.resume(out)
    assert (out / name).read_text() == "precious"


def test_a_run_that_was_killed_while_it_removed_results_is_replaced(out, monkeypatch):
    removed = iter(range(100))
    unlink = Path.unlink

    def cut_off(path, missing_ok=False):
        if path.parent == out and path.suffix != ".lock" and next(removed) == 3:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", cut_off)
        with pytest.raises(KeyboardInterrupt):
            og.run(heat(), out=out, overwrite=True, **STREAMED)
    assert (out / "record.json").exists()
    og.run(heat(), out=out, overwrite=True, **STREAMED)
    assert (out / "notes.txt").exists()


def test_the_command_line_overwrites_when_it_is_told_to(tmp_path, capsys):
    job, out = tmp_path / "heat.toml", tmp_path / "heat.run"
    job.write_text(
        '[problem]\nstencil = "heat5"\nshape = [40, 64]\nsteps = 6\nparameters = {k = 0.2}\n'
        'initial = {u = 1.0}\n[run]\nmemory = "256MiB"\n'
    )
    assert main(["run", str(job), "--quiet"]) == 0
    assert main(["run", str(job), "--quiet"]) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
    assert main(["run", str(job), "--quiet", "--overwrite"]) == 0
    assert np.load(out / "u.npy").shape == (40, 64)
    job.write_text(job.read_text() + "overwrite = true\n")  # a file that wipes results, unasked
    assert main(["run", str(job), "--quiet"]) == 2
    assert "unknown key 'overwrite'" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("mpiexec", path=Path(sys.executable).parent) is None, reason="MPI")
def test_ranks_overwrite_the_results_of_ranks_and_of_one(tmp_path):
    program = (
        "import sys, outgrid as og\n"
        "p = og.Problem('heat7', (40, 16, 33), steps=int(sys.argv[2]), parameters={'k': 0.1}, "
        "initial={'u': 'x + y * z'})\n"
        "og.run(p, out=sys.argv[1], memory='300MiB', overwrite=True)\n"
    )
    out = tmp_path / "run"
    for ranks, steps in ((1, 2), (2, 3), (3, 4), (1, 5)):
        command = [Path(sys.executable).parent / "mpiexec", "-n", str(ranks)] if ranks > 1 else []
        subprocess.run([*command, sys.executable, "-c", program, out, str(steps)], check=True)
        assert og.open(out).record.steps == steps
        assert sorted(path.name for path in out.glob("rank.*")) == [
            f"rank.{rank}" for rank in range(ranks) if ranks > 1
        ]
    assert sorted(path.name for path in out.iterdir()) == [
        *("progress.jsonl", "record.json", "status.json"),
        *("u", "u.npy", "u.npy.xxh3", "x", "y", "z", "zarr.json"),
    ]


def test_a_run_of_fewer_axes_replaces_one_of_more_and_the_other_way_round(tmp_path):
    """A chunk of the former is then where a folder of the new one is."""
    out = tmp_path / "run"
    flat = og.Problem("heat5", (9, 9), steps=2, parameters={"k": 0.1}, initial={"u": "x + y"})
    cubic = heat(2)
    for problem in (cubic, flat, cubic):
        result = og.run(problem, out=out, overwrite=True, memory="200MiB", tier="memory")
        assert result["u"].shape == problem.shape
        np.testing.assert_array_equal(result.to_xarray()["u"], result["u"])
    (out / "u/c/0/0/1").write_text("precious")
    with pytest.raises(UsageError, match="u/c/0/0 exists and is not overwritten"):
        og.run(flat, out=out, overwrite=True, memory="200MiB", tier="memory")
    assert (out / "u.npy").exists()
