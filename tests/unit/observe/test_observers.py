"""An observer of one's own, in the list, is called at every moment, alone and on ranks."""

import json
import random
from functools import partial

import numpy as np
import pytest

from outgrid import observe, pipeline
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import UsageError
from outgrid.execute.kernel import Kernel
from outgrid.observe.observer import Noted, Observer
from outgrid.runs.state import RunFolder
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads

STEPS = 7
NAME = "diary.txt"


class Diary(Observer):
    """Notes each moment, and leaves what all ranks have noted in a file."""

    told: dict[int, list[str]] = {}  # noqa: RUF012 - of all ranks, which are threads here

    def __init__(self, run):
        super().__init__(run)
        self.moments = self.told.setdefault(run.comm.rank, [])
        self.steps = []
        self.initial = lambda arrival, planes, rows, cells: self.note("initial")
        self.leaving = lambda put, window: self.note("leaving")

    def note(self, moment):
        if self.moments[-1:] != [moment]:
            self.moments.append(moment)

    @classmethod
    def files(cls, problem, options, *, alone=True):
        return (NAME,) if alone else ()

    def begin(self, manifest, found):
        self.note("begin")
        if self.run.comm.rank == 0:
            partial_path(self.run.out / NAME).write_text("")
        return manifest

    def go_on(self):
        self.note("go_on")

    def filled(self, finite):
        self.note("filled")

    def attach(self, kernel):
        self.note("attach")
        return kernel

    def check(self, point):
        self.note("check")

    def commit(self, reached, manifest):
        assert RunFolder.of_manifest(self.run.folder.out)[1].steps_done <= reached.steps
        self.note("commit")
        self.steps.append(reached.steps)
        return manifest

    def committed(self, point):
        assert RunFolder.of_manifest(self.run.folder.out)[1].steps_done == self.steps[-1]
        self.note("committed")

    def close(self):
        self.note("close")

    def place(self, comm):
        self.note("place")
        every = comm.share(self.steps)
        if comm.rank == 0:
            path = partial_path(self.run.out / NAME)
            path.write_text(json.dumps(every))
            path.rename(self.run.out / NAME)
        return Noted(checksums={"diary": str(len(every))})


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(observe, "KINDS", (*observe.KINDS, Diary))
    monkeypatch.setattr(Diary, "told", {})
    return Diary.told


def heat(steps=STEPS):
    values = np.random.default_rng(1).random((40, 9, 12))
    return Problem("heat7", (40, 9, 12), steps=steps, initial={"u": values})


def options(out):
    return RunOptions.of(memory="512MiB", threads=1, out=out, depth=3, tier="direct", slab_planes=2)


def check(moments):
    """Every moment is there, and each kind of moment is at its place."""
    assert moments[:5] == ["begin", "initial", "filled", "check", "commit"]
    assert moments[5:7] == ["committed", "attach"]
    assert moments[-2:] == ["close", "place"]
    under_way = moments[7:-2]
    assert set(under_way) == {"leaving", "check", "commit", "committed"}
    for number, moment in enumerate(under_way):
        if moment == "commit":
            assert (under_way[number - 1], under_way[number + 1]) == ("check", "committed")


def test_an_observer_is_called_at_every_moment(told, tmp_path):
    result = pipeline.run(heat(), options(tmp_path / "run"))
    check(told[0])
    assert result.record.checksums["diary"] == "1"
    steps = json.loads((result.out / NAME).read_text())
    assert steps == [sorted(steps[0])]
    assert (steps[0][0], steps[0][-1]) == (0, STEPS)
    assert not list(result.out.glob("*.new"))


def test_what_an_observer_has_left_goes_when_the_run_is_replaced(told, tmp_path):
    out = tmp_path / "run"
    result = pipeline.run(heat(), options(out))
    assert NAME in result.record.left
    (out / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        pipeline.run(heat(), options(out))
    pipeline.run(heat(STEPS - 3), options(out), overwrite=True)
    steps = json.loads((out / NAME).read_text())
    assert steps[0][-1] == STEPS - 3
    assert (out / "mine.txt").read_text() == "kept"


def test_an_observer_is_called_on_every_rank(told, tmp_path):
    results = _on_ranks(2, heat(), options(tmp_path / "run"))
    assert sorted(told) == [0, 1]
    for moments in told.values():
        check(moments)
    assert results[1].record.checksums["diary"] == "2"
    assert len(json.loads((tmp_path / "run" / NAME).read_text())) == 2


def test_what_an_observer_is_going_to_leave_is_not_overwritten(told, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / NAME).write_text("mine")
    for run in (pipeline.run, partial(_on_ranks, 2)):
        with pytest.raises(Exception, match=rf"{NAME} exists and is not overwritten"):
            run(heat(), options(out))
    assert (out / NAME).read_text() == "mine"
    assert told == {}


def _on_ranks(count, problem, given):
    return in_threads(lambda comm: pipeline.run(problem, given, comm=comm), count, random.Random(1))


def test_an_observer_of_a_run_that_goes_on_looks_at_what_is_there(told, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "advance", _failing)
        with pytest.raises(RuntimeError):
            pipeline.run(heat(), options(out))
    assert told[0][-2:] == ["attach", "close"]
    del told[0][:]
    pipeline.resume(out, RunOptions.of(memory="512MiB", tier="direct"))
    assert told[0][:2] == ["go_on", "attach"]
    assert told[0][-2:] == ["close", "place"]
    assert not list(out.glob("*.new"))


def _failing(*_given):
    raise RuntimeError("the kernel fails")
