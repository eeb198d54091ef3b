"""What `outgrid show` tells of a run that is not finished, and `outgrid clean` of one that is."""

import json
import os
import re
import socket

import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import Stopped
from outgrid.execute import streaming
from outgrid.execute.fill import fill
from outgrid.observe import live
from outgrid.runs.lock import LOCK_NAME, RunLock, owner_of
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.status import status

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
HERE = f"{os.getpid()} on {socket.gethostname()}"


def heat():
    shape = (40, 16, 33)
    return og.Problem("heat7", shape, steps=12, parameters={"k": 0.1}, initial={"u": "x + y * z"})


def shown(out, capsys, *more):
    capsys.readouterr()
    assert main(["show", str(out), *more]) == 0
    return capsys.readouterr().out


def test_a_run_is_shown_while_it_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(live, "SECONDS_BETWEEN_READINGS", 0.0)  # the first may have no updates
    out, told = tmp_path / "run", {}

    def look(stage):
        if stage not in told:
            told[stage] = shown(out, capsys), json.loads(shown(out, capsys, "--json"))

    def filled(*arguments, **others):
        look("fill")
        return fill(*arguments, **others)

    monkeypatch.setattr("outgrid.execution.fill", filled)
    og.run(heat(), out=out, progress=lambda seen: look(seen.sweep), commit_every=0, **STREAMED)
    text, found = told["fill"]
    assert text.startswith("running: its initial values are being written\n")
    assert f"process  {HERE}, since " in text
    assert (found["state"], found["pid"], found["steps_done"]) == ("running", os.getpid(), -1)
    text, found = told[2]
    lines = text.splitlines()
    assert re.fullmatch(r"running: [36] of 12 steps.* are kept", lines[0])
    assert re.search(r"rate +\S+ GLUP/s, read \S+ GB/s, write \S+ GB/s", text)
    assert re.search(r"cpu +\d+\.\d\d processors for 1 thread\n", text)
    assert re.search(r"memory +\S+ MiB of 200 MiB", text)
    assert re.search(r"left +.* by the plan", text)
    assert re.search(r"kept +.* ago", text)
    assert "outgrid resume" not in text
    assert found["running"] is True
    assert found["glups"] > 0
    (reading,) = found["readings"]
    assert reading["state"] == "running"
    assert 0 < reading["share_done"] < 1
    assert reading["memory_limit_bytes"] == 200 << 20
    assert "GLUP/s" in shown(out, capsys)  # its record


def stopped(out):
    with pytest.raises(Stopped):
        og.run(heat(), out=out, stop_after=1e-9, **STREAMED)


def test_a_run_that_stopped_is_shown_with_how_it_ended(tmp_path, capsys):
    out = tmp_path / "run"
    stopped(out)
    first, process, goes_on = shown(out, capsys).splitlines()
    assert first == "unfinished: the initial values are kept, and none of the 12 steps"
    assert re.fullmatch(
        rf"  process  {os.getpid()} on \S+, stopped by the time limit of 1 ns", process
    )
    assert goes_on == f"  next     outgrid resume {out} continues"


def test_a_run_that_was_killed_or_is_elsewhere_is_told(tmp_path, capsys):
    out = tmp_path / "run"
    stopped(out)
    owner = {"pid": 1234567, "host": socket.gethostname(), "since": "2026-01-01T00:00:00+00:00"}
    (out / LOCK_NAME).write_text(json.dumps(owner))
    assert "1234567 on" in shown(out, capsys)
    assert "since 2026-01-01T00:00:00+00:00; it ended without an error message" in shown(
        out, capsys
    )
    (out / LOCK_NAME).write_text(json.dumps(owner | {"host": "elsewhere"}))
    assert shown(out, capsys).startswith("running, or cut off: the initial values are kept")
    assert "process  1234567 on elsewhere, since" in shown(out, capsys)
    (out / LOCK_NAME).unlink()
    os.mkfifo(out / LOCK_NAME)
    assert shown(out, capsys).startswith("unfinished: ")


def test_who_looks_keeps_no_run_from_starting(tmp_path):
    with RunLock(tmp_path):
        assert owner_of(tmp_path)[1] is True
        assert owner_of(tmp_path)[0].pid == os.getpid()
    assert owner_of(tmp_path) == (None, False)
    assert status(tmp_path) is None


def test_there_is_nothing_to_clean_of_a_finished_run(tmp_path, capsys):
    out = tmp_path / "run"
    og.run(heat(), out=out, **STREAMED)
    before = sorted(out.iterdir())
    for more in ((), ("--delete",)):
        assert main(["clean", str(out), *more]) == 0
        assert capsys.readouterr().out == f"the run in {out} is finished: no files to remove\n"
    assert main(["clean", str(out), "--delete", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"files": [], "bytes": 0, "steps_done": None, "steps": None, "deleted": False}
    assert sorted(out.iterdir()) == before
    assert main(["clean", str(tmp_path)]) == 2
    assert f"has no {MANIFEST_NAME}" in capsys.readouterr().err
