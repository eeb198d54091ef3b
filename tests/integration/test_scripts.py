"""What a script shows while it runs, and what Ctrl-C means to it."""

import io
import os
import signal
import sys

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import Stopped
from outgrid.execute import streaming
from outgrid.stencil.problem import Problem

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}


def problem():
    return Problem("heat7", (40, 16, 33), "float64", 12, {"k": 0.1}, initial={"u": "x + y * z"})


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def eager(monkeypatch):
    """Progress that is told at once, as on a terminal of 120 columns."""
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("eager")
def test_a_terminal_shows_how_a_script_comes_along(tmp_path, monkeypatch):
    terminal, out = Terminal(), tmp_path / "run"
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(Stopped):
        og.run(problem(), out=out, stop_after=1e-9, **STREAMED)
    assert "compiling the kernel" in terminal.getvalue()
    terminal.truncate(0)
    og.resume(out, memory="300MiB")
    shown = terminal.getvalue()
    assert "memory 200 MiB -> 300 MiB\n" in shown
    assert "sweep 2/4" in shown
    assert "moving the results into place" in shown


@pytest.mark.usefixtures("eager")
def test_progress_is_shown_where_it_is_asked_for(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    og.run(problem(), out=tmp_path / "run", progress=False, **STREAMED)
    seen = []
    og.run(problem(), out=tmp_path / "other", progress=seen.append, **STREAMED)
    assert seen
    assert terminal.getvalue() == ""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr("outgrid.report.progress.SECONDS_BETWEEN_LINES", 0.0)
    og.run(problem(), out=tmp_path / "third", **STREAMED)
    assert file.getvalue() == ""
    og.run(problem(), out=tmp_path / "fourth", progress=True, **STREAMED)
    assert "sweep 2/4" in file.getvalue()
    monkeypatch.setattr(sys, "stderr", None)
    og.run(problem(), out=tmp_path / "fifth", **STREAMED)


def interrupted_at(slab, times=1):
    """Progress that presses Ctrl-C once a slab is written."""
    pressed = []

    def press(progress):
        if progress.slab == slab and not pressed:
            pressed.append(slab)
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return press


def test_ctrl_c_keeps_what_is_made_and_says_how_much(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    out = tmp_path / "run"
    with pytest.raises(
        KeyboardInterrupt,
        match=rf"^stopped; the initial values and \d.* % of the first sweep are kept; "
        rf"og.resume\('{out}'\) continues it$",
    ):
        og.run(problem(), out=out, progress=interrupted_at(15), **STREAMED)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped; [36] of 12 steps.* are kept; og"):
        og.resume(out, progress=interrupted_at(45))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    found = np.array(og.resume(out)["u"])
    assert (found == og.run(problem(), out=tmp_path / "whole", **STREAMED)["u"]).all()


def test_a_second_ctrl_c_ends_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match="stopped; the initial values are kept"):
        og.run(problem(), out=out, progress=interrupted_at(15, times=2), **STREAMED)
    assert (out / "manifest.json").exists()
    og.resume(out)


def test_ctrl_c_before_the_first_step_leaves_nothing(tmp_path, monkeypatch):
    def press(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("outgrid.execution.fill", press)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match="stopped; it has no durable state"):
        og.run(problem(), out=out, **STREAMED)
    assert not out.exists()


def test_programs_that_hear_ctrl_c_themselves_go_on_doing_so(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        og.run(problem(), out=tmp_path / "run", progress=interrupted_at(15), **STREAMED)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [True]
