"""Every tier and both ways to use it: the same bytes, honest records, and what survives a crash."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, InfeasiblePlan, StoreError, UsageError
from outgrid.execute import files
from outgrid.execute.stop import Stop
from outgrid.runs import space
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore

SHAPE = (30, 23, 37)  # nothing is aligned
STEPS = 7
BLOCKS = {"scheme": "overlapped", "block": (9, 8, 35), "depth": 3}


def problem(steps=STEPS):
    values = np.random.default_rng(3).random(SHAPE)
    return Problem("heat7", SHAPE, "float64", steps, {"k": 0.1}, "frozen", {"u": values})


def run(out, **given):
    return pipeline.run(problem(), RunOptions.of(memory="200MiB", out=out, threads=1, **given))


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    return run(out, tier="memory").path("u").read_bytes()


@pytest.mark.parametrize(
    "given",
    [
        {"tier": "mmap", "depth": 3, "slab_planes": 4},
        {"tier": "mmap", "depth": 2, "madvise": "normal", "msync": "async"},
        {"tier": "mmap", "depth": 3, "madvise": ("sequential", "willneed"), "msync": "sync"},
        {"tier": "mmap", "strip_rows": 7, "depth": 2},
        {"tier": "mmap", **BLOCKS},
        {"tier": "mmap", "in_place": True, "scheme": "plain", "madvise": "random"},
        {"tier": "mmap", "in_place": True, "depth": 3, "slab_planes": 5, "commit_every": 0},
        {"tier": "swap", "depth": 3, "slab_planes": 4, "madvise": ("willneed", "dontneed")},
        {"tier": "swap", "strip_rows": 7, "depth": 2},
        {"tier": "swap", **BLOCKS},
        {"tier": "swap", "in_place": True, "scheme": "plain"},
        {"tier": "swap", "in_place": True, "depth": 3, "madvise": "sequential"},
    ],
    ids=str,
)
def test_every_tier_gives_the_same_bytes_and_says_what_it_took(given, tmp_path, answer):
    result = run(tmp_path / "run", **given)
    assert result.path("u").read_bytes() == answer
    plan, measured = result.record.planned, result.record.measured
    assert (plan["tier"], plan["resident"]) == (given["tier"], given.get("in_place", False))
    if plan["tier"] == "mmap" or not plan["resident"]:
        assert measured.engine == "threads"
    assert (measured.read_bytes, measured.written_bytes) == (
        plan["read_bytes"],
        plan["written_bytes"],
    )
    anonymous = plan["tier"] == "swap" and not plan["resident"]
    assert measured.exported_bytes == (problem().field_bytes if anonymous else 0)
    assert measured.buffered_bytes == 0 or plan["tier"] == "swap"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *("progress.jsonl", "record.json", "status.json"),
        *("u", "u.npy", "u.npy.xxh3", "x", "y", "z", "zarr.json"),
    ]


@pytest.mark.parametrize(
    "given", [{"tier": "direct", "depth": 2}, {"tier": "memory"}, {"tier": "mmap"}]
)
def test_a_window_that_has_to_be_locked_is_on_every_tier(given, tmp_path, monkeypatch, answer):
    real, locked = files.Buffer, []

    def buffer(nbytes, *, huge_pages=True, lock=False):
        locked.append(lock)
        return real(nbytes)

    monkeypatch.setattr(files, "Buffer", buffer)
    result = run(tmp_path / "locked", require="mlock", **given)
    assert result.path("u").read_bytes() == answer
    assert {*locked} == {True}
    locked.clear()
    run(tmp_path / "usual", **given)
    assert {*locked} == {False}

    def refused(nbytes, *, huge_pages=True, lock=False):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(files, "Buffer", refused)
    with pytest.raises(StoreError, match=r"may swap the window out.*but the run requires mlock"):
        run(tmp_path / "run", require="mlock", **given)


def test_files_that_have_to_be_direct_and_are_not_leave_nothing(tmp_path, monkeypatch):
    make = DirectStore.__init__

    def buffered(self, *given, **named):
        make(self, *given, **named)
        self.direct = False

    monkeypatch.setattr(DirectStore, "__init__", buffered)
    with pytest.raises(StoreError, match=r"refused O_DIRECT.*but the run requires direct"):
        run(tmp_path / "run", tier="direct", depth=2, require="direct")
    assert not [path for path in (tmp_path / "run").rglob("*") if path.suffix != ".lock"]


def test_mapped_files_are_resumed_on_another_tier_and_back(tmp_path, answer, monkeypatch):
    out = tmp_path / "run"
    given = {"memory": "200MiB", "depth": 2, "slab_planes": 3, "commit_every": 0}
    original, calls = DirectStore.put, iter(range(10**9))

    def faulty(self, *arguments):
        if next(calls) in (20, 30):
            return self._transfers.fail(StoreError("on purpose", path=self.path, errno=5))
        return original(self, *arguments)

    monkeypatch.setattr(DirectStore, "put", faulty)
    with pytest.raises(StoreError, match="errno 5"):
        pipeline.run(problem(), RunOptions.of(out=out, tier="mmap", **given))
    with pytest.raises(StoreError, match="errno 5"):
        pipeline.resume(out, RunOptions.of(tier="direct", **given))
    with pytest.raises(UsageError, match="tier swap keeps no files to resume from"):
        pipeline.resume(out, RunOptions.of(tier="swap", memory="200MiB"))
    result = pipeline.resume(out, RunOptions.of(tier="mmap", **given))
    assert result.path("u").read_bytes() == answer
    assert 1 < len(result.record.parts) <= 3  # of each process that came to a commit


def test_a_run_on_swap_that_was_killed_says_that_nothing_is_left(tmp_path):
    out = tmp_path / "run"
    (tmp_path / "job.toml").write_text(
        """
        [problem]
        stencil = "heat7"
        shape = [60, 60, 60]
        steps = 100000
        parameters = {k = 0.1}
        initial = {u = "x"}
        [run]
        memory = "200MiB"
        tier = "swap"
        out = "run"
        """
    )
    command = [sys.executable, "-m", "outgrid", "run", str(tmp_path / "job.toml"), "--quiet"]
    process = subprocess.Popen(command)
    while process.poll() is None and not (out / MANIFEST_NAME).exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(UsageError, match=r"tier swap.* cannot be resumed"):
        pipeline.resume(out, RunOptions.of(memory="200MiB"))


def test_a_run_on_swap_that_is_stopped_leaves_nothing_behind(tmp_path):
    stop = Stop()
    stop.request("a test")
    options = RunOptions.of(memory="200MiB", out=tmp_path / "run", tier="swap", depth=2)
    with pytest.raises(ExecutionError, match="on tier swap nothing of the run is left"):
        pipeline.run(problem(), options, stop=stop)
    assert not (tmp_path / "run").exists()


def test_what_does_not_fit_into_memory_and_swap_is_refused_with_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(space, "anonymous_bytes", lambda: (80 << 20, 3 << 20))
    with pytest.raises(InfeasiblePlan, match=r"80\.0 MiB of memory and 3\.00 MiB of swap are free"):
        run(tmp_path / "run", tier="swap", depth=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tier": "mmap", "engine": "aio"}, "engine = 'aio' is for files .*, not for tier mmap"),
        ({"tier": "mmap", "madvise": "seqential"}, "did you mean 'sequential'"),
        (
            {"tier": "mmap", "in_place": True, **BLOCKS},
            "for grids that are streamed, not for sweeps",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        run(tmp_path / "run", **given)
