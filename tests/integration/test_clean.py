"""What an unfinished run leaves is listed, and deleted on demand if it is the run's own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.stencil.problem import Problem

PROBLEM = Problem("heat7", (40, 12, 32), "float64", 8, {"k": 0.1}, initial={"u": "x * y"})

RESULTS = {"rank.0", "record.json", "progress.jsonl", "status.json", "log.txt", "run.lock"}
RESULTS |= {"snapshot.0.npy", "snapshot.0.npy.xxh3"}
# What goes when the next run begins.
BEFORE = re.compile(r"run\.lock|(ranks|manifest)\.json\.[0-9a-f]{16}\.new")


def read_zarr(names):
    """The files and folders among these that make a run a group of Zarr."""
    arrays = {Path(name).parent.name for name in names if Path(name).name == "zarr.json"}
    return [name for name in names if name == "zarr.json" or Path(name).parts[0] in arrays]


def options(out: Path, **others) -> RunOptions:
    given = {"tier": "direct", "depth": 2, "slab_planes": 4, "threads": 1}
    return RunOptions.of(memory="256MiB", out=out, **(given | others))


@pytest.fixture
def unfinished(tmp_path):
    out = tmp_path / "run"

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(PROBLEM, options(out, scratch=tmp_path / "flash"), interrupt)
    return out


def test_leftovers_are_listed_and_stay_until_deletion_is_asked_for(unfinished, capsys):
    flash = unfinished.parent / "flash"
    (flash / "notes.txt").write_text("mine")
    (unfinished / "notes.txt").write_text("mine")
    before = sorted(unfinished.parent.rglob("*"))
    assert main(["clean", str(unfinished)]) == 0
    words = capsys.readouterr().out
    assert str(flash / "u.0.npy") in words
    assert "the initial values are kept, and none of the 8 steps; outgrid resume" in words
    assert sorted(unfinished.parent.rglob("*")) == before
    assert main(["clean", str(unfinished), "--delete", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deleted"] is True
    left = [path for path in unfinished.parent.rglob("*") if path.is_file()]
    assert sorted(left) == [flash / "notes.txt", unfinished / "notes.txt"]


def test_how_far_an_unfinished_run_has_come_is_shown(unfinished, capsys):
    assert main(["show", str(unfinished)]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "unfinished: the initial values are kept, and none of the 8 steps"
    assert main(["show", str(unfinished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_done"] == 0
    pipeline.resume(unfinished, options(unfinished))
    assert main(["show", str(unfinished)]) == 0
    assert capsys.readouterr().out.startswith("heat7 on 40 x 12 x 32")


def test_a_link_in_the_place_of_a_file_goes_and_what_it_leads_to_stays(unfinished, capsys):
    flash, precious = unfinished.parent / "flash", unfinished.parent / "precious.npy"
    precious.write_bytes(b"precious")
    for place in (flash / "u.0.npy", unfinished / "manifest.json.new"):
        place.unlink(missing_ok=True)
        place.symlink_to(precious)
    assert main(["clean", str(unfinished), "--delete"]) == 0
    assert not flash.exists()
    assert precious.read_bytes() == b"precious"


def test_a_run_that_goes_on_is_not_cleaned(unfinished, capsys):
    with RunLock(unfinished):
        assert main(["clean", str(unfinished), "--delete"]) == 2
    assert "in use by process" in capsys.readouterr().err
    assert (unfinished / MANIFEST_NAME).exists()


def test_without_a_manifest_nothing_is_deleted(tmp_path, capsys):
    (tmp_path / "u.npy").write_text("7")
    assert main(["clean", str(tmp_path), "--delete"]) == 2
    assert "has no manifest.json" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["u.npy"]


def test_a_result_shows_itself_in_a_line(tmp_path):
    found = repr(pipeline.run(PROBLEM, options(tmp_path / "run")))
    assert found.startswith(f"<Result in {tmp_path / 'run'}: {PROBLEM.stencil.name} on ")
    assert found.endswith(f", {PROBLEM.steps} steps; u>")
    assert "\n" not in found


def test_tasks_of_slurm_without_mpi_are_told_how_to_share_a_run(unfinished, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with RunLock(unfinished):
        with pytest.raises(UsageError, match="2 tasks with no MPI between them: srun --mpi=pmi2"):
            pipeline.run(PROBLEM, options(unfinished))
        monkeypatch.setenv("PMI_SIZE", "2")  # so there is
        with pytest.raises(UsageError, match=r"may use a folder$"):
            RunLock(unfinished).__enter__()


def test_a_second_run_in_the_folder_is_refused_and_touches_nothing(unfinished):
    before = sorted(unfinished.rglob("*"))
    with RunLock(unfinished):
        with pytest.raises(UsageError, match="in use by process"):
            pipeline.run(PROBLEM, options(unfinished))
        with pytest.raises(UsageError, match="in use by process"):
            pipeline.resume(unfinished, options(unfinished))
    assert sorted(unfinished.rglob("*")) == before


def test_a_run_refused_leaves_no_folder(tmp_path):
    out = tmp_path / "run"
    (tmp_path / "flash").mkdir()
    (tmp_path / "flash" / "u.0.npy").write_text("7")
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        pipeline.run(PROBLEM, options(out, scratch=tmp_path / "flash"))
    assert not out.exists()
    assert (tmp_path / "flash" / "u.0.npy").read_text() == "7"


def test_whatever_moment_a_run_is_killed_in_all_that_it_made_can_be_cleared(tmp_path):
    """With ranks and without: when it begins, goes on in other files, and ends."""
    script = Path(__file__).parent / "killed_anywhere.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert {kill["action"] for kill in kills} == {"begin", "alone", "resume", "finish"}
    assert len(kills) > 100
    for kill in kills:
        assert all(BEFORE.fullmatch(name) for name in kill["replaced"]), kill
        if kill["told"] is None:  # it had not even made its folder
            assert not kill["left"]
            continue
        steps, foreign, error = kill["told"]
        assert not foreign, kill
        if kill["action"] == "finish":
            finished = set(read_zarr(kill["left"])) if "record.json" in kill["left"] else set()
            left = set(kill["left"]) - finished
            assert all("u.npy" in name or name in RESULTS for name in left), kill
        elif steps is not None:
            assert not error, kill
            assert not kill["left"], kill
        else:
            assert "no unfinished run" in error, kill
            assert all(BEFORE.fullmatch(name) for name in kill["left"]), kill
        assert kill["action"] != "resume" or steps == 0, kill
