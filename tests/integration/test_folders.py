"""Folders that a run makes are told with their disk; none is made in a folder that is not there."""

import os
import re
from pathlib import Path

import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import UsageError

JOB = """
[problem]
stencil = "heat5"
shape = [40, 64]
steps = 6
parameters = {k = 0.2}
initial = {u = 1.0}
[run]
memory = "256MiB"
tier = "direct"
"""
ON = r" is a new folder on /\S* \(\S+, \S+\), which has [0-9.]+ \SiB of free space"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "heat.toml"
    path.write_text(JOB)
    return path


def test_new_folders_are_told_with_their_disk(job, tmp_path, capsys):
    scratch = tmp_path / "nvme"
    out = tmp_path / "heat.run"
    assert main(["plan", str(job), "--scratch", str(scratch)]) == 0
    told = capsys.readouterr()
    assert re.search(rf"note +out {out}{ON}", told.out)
    assert re.search(rf"note +scratch {scratch}{ON}", told.out)
    assert not told.err
    assert not scratch.exists()
    assert main(["run", str(job), "--scratch", str(scratch)]) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"out {out}{ON}", first)
    assert re.fullmatch(rf"scratch {scratch}{ON}", second)
    assert [note.split()[0] for note in og.open(out).record.planned["notes"][-2:]] == [
        "out",
        "scratch",
    ]


def test_folders_that_are_there_need_no_word(job, tmp_path, capsys):
    scratch, out = tmp_path / "nvme", tmp_path / "heat.run"
    scratch.mkdir()
    out.mkdir()
    assert main(["plan", str(job), "--scratch", str(scratch)]) == 0
    assert "new folder" not in capsys.readouterr().out
    assert main(["run", str(job), "--scratch", str(scratch)]) == 0
    assert "new folder" not in capsys.readouterr().err


def test_folders_above_that_of_the_results_are_made_and_told(job, tmp_path, capsys):
    out = tmp_path / "runs" / "heat" / "1"
    assert main(["run", str(job), "--out", str(out)]) == 0
    assert re.search(rf"out {out}{ON}", capsys.readouterr().err)
    assert (out / "u.npy").exists()


def test_a_scratch_folder_whose_parent_is_missing_is_refused(job, tmp_path, capsys):
    which = "scratch"
    missing = tmp_path / "mnt" / "disk" / "here"
    words = (
        f"{which} {missing}: {missing.parent} does not exist, and the folder would be made on "
        r"/\S* \(.*\), which has .* of free space; the nearest folder that exists is "
        f"{tmp_path}: make {missing.parent} or mount its disk, or name another folder"
    )
    main(["plan", str(job), f"--{which}", str(missing)])
    assert re.search(f"a run would fail: {words}", capsys.readouterr().err)
    assert main(["run", str(job), f"--{which}", str(missing)]) == 2
    assert re.search(words, capsys.readouterr().err)
    problem = og.Problem("heat5", (40, 64), steps=6, parameters={"k": 0.2}, initial={"u": 1.0})
    folders = {"out": tmp_path / "heat.run", which: missing}
    noted = [note for note in og.plan(problem, **folders).notes if "would fail" in note]
    assert len(noted) == 1
    assert re.search(words, noted[0])
    with pytest.raises(UsageError, match=words):
        og.run(problem, memory="256MiB", **folders)
    assert sorted(os.listdir(tmp_path)) == ["heat.toml"]


def test_working_files_inside_of_results_need_no_folder_before(job, tmp_path):
    out = tmp_path / "heat.run"
    assert main(["run", str(job), "--quiet", "--scratch", str(out / "a" / "b")]) == 0
    assert not (out / "a" / "b").exists()
    assert Path(out / "u.npy").exists()
