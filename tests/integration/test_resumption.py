"""A run goes on with the options it had; what its resume changes is told."""

import json
import shutil

import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.comm import Serial
from outgrid.config import RunOptions
from outgrid.errors import Stopped, UsageError
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.resumption import resumption
from outgrid.stencil.problem import Problem


def problem():
    return Problem("heat7", (40, 16, 33), "float64", 12, {"k": 0.1}, initial={"u": "x + y * z"})


def stopped(out, **options):
    """Begin a run that stops right after its initial values."""
    with pytest.raises(Stopped):
        og.run(problem(), out=out, stop_after=1e-9, **({"threads": 1} | options))
    return out


def plan_of(record):
    names = ("memory_bytes", "tier", "depth", "slab_planes", "threads")
    return {name: record.planned[name] for name in names}


def test_a_run_goes_on_with_the_options_it_had(tmp_path):
    given = {"memory": "160MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
    out = stopped(tmp_path / "run", queue_depth=7, watch=False, endurance="600TBW", **given)
    found = resumption(out, {}, Serial())
    wanted = RunOptions.of(
        out=out, scratch=None, queue_depth=7, watch=False, endurance="600TBW", **given
    )
    assert found.options.kept(out) == wanted.kept(out)
    assert found.options.stop_after_seconds is None
    assert found.changes == ()
    # It stops again, on its way.
    with pytest.raises(Stopped):
        og.resume(out, stop_after=1e-9)
    record = og.resume(out).record
    assert plan_of(record) == {
        "memory_bytes": 160 << 20,
        "tier": "direct",
        "depth": 3,
        "slab_planes": 2,
        "threads": 1,
    }
    assert record.measured.memory_limit_bytes == 160 << 20


def test_what_a_resume_changes_is_told_and_kept(tmp_path, capsys):
    out = stopped(tmp_path / "run", memory="160MiB", tier="direct", depth=3)
    changes = ["memory 160 MiB -> 1.00 GiB", "depth 3 -> left to the plan", "watch true -> false"]
    given = ["--memory", "1GiB", "--set", "depth=auto", "--set", "watch=false"]
    assert main(["resume", str(out), *given, "--stop-after", "1ms"]) == 75
    assert capsys.readouterr().err.splitlines()[:3] == changes
    assert main(["resume", str(out), "--tier", "memory", "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == "tier direct -> memory\n"
    record = json.loads(told.out)
    assert record["plan"]["memory_bytes"] == 1 << 30
    assert "tier direct -> memory" in record["plan"]["notes"]


def test_a_tier_that_comes_of_another_limit_is_told(tmp_path, capsys):
    # As the plan of this limit and grid would have it on a machine with more memory.
    out = stopped(tmp_path / "run", memory="160MiB", tier="direct")
    path = out / MANIFEST_NAME
    manifest = json.loads(path.read_text())
    del manifest["options"]["tier"]
    path.write_text(json.dumps(manifest))
    assert main(["resume", str(out), "--memory", "1GiB", "--quiet", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["plan"]["notes"]
    assert {"memory 160 MiB -> 1.00 GiB", "tier direct -> memory"} <= {*notes}


def test_options_that_mean_nothing_any_more_are_left_out(tmp_path):
    out = stopped(tmp_path / "run", memory="200MiB", tier="mmap", msync="sync", depth=3)
    found = resumption(out, {"tier": "direct"}, Serial())
    assert found.changes == (
        "tier mmap -> direct",
        "msync sync left out: it is for tier mmap",
    )
    with pytest.raises(UsageError, match="engine = 'io_uring' is for files"):
        resumption(out, {"engine": "io_uring"}, Serial())
    with pytest.raises(UsageError, match="unknown option 'dept'; did you mean 'depth'"):
        og.resume(out, dept=3)
    assert og.resume(out, tier="direct").record.planned["depth"] == 3


def test_a_run_that_was_moved_goes_on_in_its_folder(tmp_path):
    given = {"memory": "160MiB", "tier": "direct"}
    out = stopped(tmp_path / "run", scratch=tmp_path / "run" / "work", **given)
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    shutil.move(out, moved)
    options = resumption(moved, {}, Serial()).options
    assert options.scratch == moved / "work"
    assert og.resume(moved)["u"].shape == (40, 16, 33)
    assert not out.exists()


def test_a_manifest_without_options_is_read(tmp_path):
    out = stopped(tmp_path / "run", memory="160MiB", tier="direct")
    path = out / MANIFEST_NAME
    manifest = json.loads(path.read_text())
    del manifest["options"], manifest["tier"]
    path.write_text(json.dumps(manifest))
    found = resumption(out, {"memory": "300MiB"}, Serial())
    assert (found.options.memory_bytes, found.changes) == (300 << 20, ())
    og.resume(out, memory="300MiB")


def test_options_of_another_version_are_named(tmp_path):
    out = stopped(tmp_path / "run", memory="160MiB", tier="direct")
    path = out / MANIFEST_NAME
    manifest = json.loads(path.read_text())
    manifest["options"]["colour"] = "red"
    path.write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=r"manifest.json has options of another .*'colour'"):
        og.resume(out)


def test_memory_that_was_not_asked_for_is_what_the_machine_has(tmp_path, monkeypatch):
    out = stopped(tmp_path / "run", tier="direct")
    monkeypatch.setattr("outgrid.machine.memory_limit_bytes", lambda: 700 << 20)
    found = resumption(out, {}, Serial())
    assert (found.options.memory_bytes, found.changes) == (350 << 20, ())
    changes = resumption(out, {"memory": "1GiB"}, Serial()).changes
    assert changes == ("memory half of the memory that the process may use -> 1.00 GiB",)
