"""`outgrid watch`: a run that is under way, one that was killed and one that is finished."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import Stopped, UsageError
from outgrid.execute import streaming
from outgrid.report.live import latest_frame, view
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}


def heat(steps=12):
    shape = (40, 16, 33)
    return og.Problem("heat7", shape, steps=steps, parameters={"k": 0.1}, initial={"u": "x + y"})


def stopped(out):
    with pytest.raises(Stopped):
        og.run(heat(), out=out, stop_after=1e-9, **STREAMED)


def watched(out, capsys, *more, code=0):
    capsys.readouterr()
    assert main(["watch", str(out), *more]) == code
    return capsys.readouterr().out


def test_a_run_under_way_is_seen_from_elsewhere(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    out, page, seen = tmp_path / "run", tmp_path / "run.html", {}

    def look(progress):
        if progress.sweep == 2 and not seen:
            seen["text"] = watched(out, capsys, "--once")
            seen["json"] = json.loads(watched(out, capsys, "--once", "--json"))
            assert watched(out, capsys, "--once", "--html", str(page)) == ""
            seen["page"], seen["frame"] = page.read_text(), latest_frame(out)

    og.run(heat(), out=out, progress=look, commit_every=0, preview=16, **STREAMED)
    assert seen["text"].startswith("running: ")
    assert seen["json"]["running"] is True
    assert seen["json"]["pid"] == os.getpid()
    assert "http-equiv='refresh' content='2'" in seen["page"]
    assert "<script" not in seen["page"]
    assert seen["frame"].shape == (6, 11)
    assert "data:image/png" in seen["page"]
    finished = watched(out, capsys)
    assert finished.startswith("finished: heat7 on 40 x 16 x 33")
    assert json.loads(watched(out, capsys, "--json"))["state"] == "finished"
    watched(out, capsys, "--html", str(page))
    assert "refresh" not in page.read_text()


def test_a_run_that_was_killed_is_told_with_how_to_go_on(tmp_path, capsys):
    out = tmp_path / "run"
    stopped(out)
    text = watched(out, capsys, code=75)
    assert text.startswith("unfinished: the initial values are kept")
    assert f"outgrid resume {out} continues" in text
    assert watched(out, capsys, "--once")


def test_who_watches_sees_the_death_of_a_run(tmp_path):
    out = tmp_path / "run"
    stopped(out)
    with RunLock(out):
        command = [sys.executable, "-m", "outgrid", "watch", str(out), "--every", "10ms", "--json"]
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert json.loads(watching.stdout.readline())["state"] == "running"
    rest, _ = watching.communicate()
    assert json.loads(rest.splitlines()[-1])["state"] == "unfinished"
    assert watching.returncode == 75


def test_it_survives_the_kill_of_a_process(tmp_path):
    out = tmp_path / "run"
    script = (
        "import outgrid as og, sys\n"
        "p = og.Problem('heat7', (40, 64, 64), steps=10**5, initial={'u': 'x'}, "
        "parameters={'k': 0.1})\n"
        f"og.run(p, out={str(out)!r}, memory='200MiB', tier='direct', depth=3, threads=1,"
        " progress=False)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    while process.poll() is None and not (out / MANIFEST_NAME).exists():
        time.sleep(0.001)
    command = [sys.executable, "-m", "outgrid", "watch", str(out), "--every", "10ms"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watching.stdout.readline().startswith("running: ")
    process.send_signal(signal.SIGKILL)
    process.wait()
    rest, _ = watching.communicate()
    assert watching.returncode == 75
    assert "unfinished: " in rest
    assert "it ended without an error message" in rest


def test_where_no_run_is_that_is_told(tmp_path, capsys):
    with pytest.raises(UsageError, match=r"has no manifest\.json"):
        view(tmp_path)
    assert main(["watch", str(tmp_path)]) == 2
    stopped(tmp_path / "run")
    assert main(["watch", str(tmp_path / "run"), "--every", "0s"]) == 2
    assert "must be a duration above 0" in capsys.readouterr().err
