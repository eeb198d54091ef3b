"""Bytes that changed on disk are found: by a run that reads them, and by `outgrid verify`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import StoreError
from outgrid.runs import state
from outgrid.runs.verify import verify
from outgrid.stencil.problem import Problem
from outgrid.stencil.reduction import sum_over

SHAPE = (40, 12, 33)


def problem(seed=1):
    values = np.random.default_rng(seed).random(SHAPE)
    return Problem("wave:2", SHAPE, "float64", 12, initial={"u": values, "c": 0.1})


def options(out: Path, **others) -> RunOptions:
    given = {"tier": "direct", "depth": 3, "slab_planes": 4, "threads": 1}
    return RunOptions.of(memory="256MiB", out=out, **(given | others))


def flip(path: Path, plane: int) -> None:
    """Change one bit in the middle of a plane."""
    with path.open("r+b") as file:
        file.seek(4096 + plane * SHAPE[1] * SHAPE[2] * 8 + 500)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("verify") / "run"
    pipeline.run(problem(), options(out))
    return out


def copy_of(finished: Path, folder: Path) -> Path:
    return Path(shutil.copytree(finished, folder / "copy"))


def test_a_finished_run_is_as_it_was_written(finished, capsys):
    assert main(["verify", str(finished)]) == 0
    assert "2 files, " in capsys.readouterr().out
    assert main(["verify", str(finished), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == []
    assert found["bytes"] == 2 * 8 * np.prod(SHAPE)


def test_everything_that_changed_is_listed(finished, tmp_path, capsys):
    run = copy_of(finished, tmp_path)
    flip(run / "u.npy", 7)
    flip(run / "u.npy", 39)
    flip(run / "u.previous.npy", 0)
    assert main(["verify", str(run)]) == 1
    words = capsys.readouterr().out
    assert words.count("did not match the checksums") == 2
    assert "planes 7..39 of 40 did not match the checksums: 2 rows differ, the first is row 1 of "
    assert f"file {run / 'u.npy'}" in words
    assert f"file {run / 'u.previous.npy'}" in words


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "u.npy").unlink(), "u.npy, No such file"),
        (lambda run: (run / "u.npy.xxh3").unlink(), "u.npy.xxh3, No such file"),
        (
            lambda run: (run / "u.npy").write_bytes((run / "u.npy").read_bytes()[:-1]),
            "the file has",
        ),
        (lambda run: flip(run / "u.npy.xxh3", 0), "the checksums belong to another run"),
    ],
)
def test_files_that_are_missing_or_cut_are_named(damage, words, finished, tmp_path, capsys):
    run = copy_of(finished, tmp_path)
    damage(run)
    assert main(["verify", str(run)]) == 1
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("name", ["receivers.npy", "reductions.npy"])
def test_traces_and_reductions_that_changed_are_named(name, tmp_path, capsys):
    rule = stencil(lambda u, *, k: {"u": u * k, "total": sum_over(u)}, name="summed", ndim=2)
    receivers = [{"field": "u", "position": (3, 3)}]
    given = {"steps": 4, "parameters": {"k": 0.5}, "initial": {"u": 1.0}, "receivers": receivers}
    out = pipeline.run(Problem(rule, (8, 9), "float64", **given), options(tmp_path / "run")).out
    assert main(["verify", str(out)]) == 0
    assert "3 files, " in capsys.readouterr().out
    content = bytearray((out / name).read_bytes())
    content[-3] ^= 1
    (out / name).write_bytes(content)
    assert main(["verify", str(out)]) == 1
    captured = capsys.readouterr()
    assert "not the one that the run has left: its checksum is " in captured.out
    assert f"{name}\n" in captured.out
    (out / name).unlink()
    assert main(["verify", str(out)]) == 1
    assert f"{name}, No such file" in capsys.readouterr().out


def test_a_result_of_another_run_is_told_from_this_ones(finished, tmp_path, capsys):
    run, other = copy_of(finished, tmp_path), tmp_path / "other"
    pipeline.run(problem(seed=2), options(other))
    for name in ("u.npy", "u.npy.xxh3"):
        shutil.copyfile(other / name, run / name)
    assert main(["verify", str(run)]) == 1
    assert "the checksums belong to another run" in capsys.readouterr().out


def interrupted_run(out: Path, at_slab: int) -> None:
    def interrupt(progress):
        if progress.slab == at_slab:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(problem(), options(out), interrupt)


def test_a_run_that_reads_what_it_did_not_write_stops_and_names_it(tmp_path, capsys):
    out = tmp_path / "run"
    interrupted_run(out, 18)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["steps_done"] in (3, 6)
    path = out / "scratch" / f"u.{manifest['parity']}.npy"
    assert main(["verify", str(out)]) == 0
    words = capsys.readouterr().out
    assert "no differences" in words
    assert f"its state after {manifest['steps_done']} steps was compared" in words
    flip(path, 23)
    with pytest.raises(StoreError, match="plane 23 of 40 did not match the checksums") as caught:
        pipeline.resume(out, options(out))
    assert caught.value.path == path
    assert main(["verify", str(out)]) == 1
    assert "plane 23 of 40 did not match the checksums" in capsys.readouterr().out
    flip(path, 23)
    pipeline.resume(out, options(out))
    assert main(["verify", str(out)]) == 0
    assert "unfinished" not in capsys.readouterr().out


def test_a_coefficient_that_changed_stops_the_run(tmp_path):
    out = tmp_path / "run"
    interrupted_run(out, 18)
    flip(out / "scratch" / "c.npy", 30)
    with pytest.raises(StoreError, match="plane 30 of 40 did not match the checksums") as caught:
        pipeline.resume(out, options(out))
    assert caught.value.path == out / "scratch" / "c.npy"


@pytest.mark.parametrize("name", ["wave.run", "wave.h5"])
@pytest.mark.parametrize("place", ["move 1", "move 2", "leave", "abandon"])
def test_a_run_that_is_cut_off_while_its_results_are_put_in_place_is_sound(
    tmp_path, monkeypatch, place, name
):
    moved, move = iter(range(9)), state.move

    def cut(*given, **named):
        raise KeyboardInterrupt

    def moving(old, new):
        if next(moved) == int(place[-1]):
            cut()
        move(old, new)

    out = tmp_path / "wave.run"
    with monkeypatch.context() as patch:
        if place == "leave":
            patch.setattr(pipeline, "leave_group", cut)
            patch.setattr(pipeline, "leave_file", cut)
        elif place == "abandon":
            patch.setattr(state, "remove_folder", cut)
        else:
            patch.setattr(state, "move", moving)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(problem(), options(tmp_path / name))
    found = verify(out)
    fields = 2 if place == "abandon" else 3  # there is no coefficient among results
    assert (found.errors, found.nbytes) == ((), fields * 8 * np.prod(SHAPE))
    flip(next(path for path in (out / "u.npy", out / name) if path.is_file()), 7)
    assert len(verify(out).errors) == 1


def test_a_folder_without_a_run_has_nothing_to_verify(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert "has no manifest.json" in capsys.readouterr().err
