import errno
import json

import numpy as np
import pytest

from outgrid.errors import StoreError, UsageError
from outgrid.execute import state
from outgrid.execute.state import MANIFEST_NAME, Manifest, RunFolder, level_name, move
from outgrid.plan.model import Arrival

LEVELS = (
    Arrival("u", 0, 0, constant=False),
    Arrival("u", -1, 1, constant=False),
    Arrival("c", 0, 1, constant=True),
)


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path / "out", tmp_path / "scratch")
    found.create()
    return found


def manifest_of(steps_done=0, parity=0):
    return Manifest(
        version="1", problem={"a": 1}, folder="/x", steps_done=steps_done, parity=parity
    )


def fill(folder):
    """Working files that hold their own names."""
    for level in LEVELS:
        for parity in (0, 1):
            path = folder.path(level, parity)
            path.write_text(path.name)


def test_levels_have_names_and_evolving_ones_two_files(folder):
    assert [level_name(level) for level in LEVELS] == ["u", "u.previous", "c"]
    names = [[folder.path(level, parity).name for parity in (0, 1)] for level in LEVELS]
    assert names == [
        ["u.0.npy", "u.1.npy"],
        ["u.previous.0.npy", "u.previous.1.npy"],
        ["c.npy"] * 2,
    ]


def test_a_manifest_is_read_as_it_was_written(folder):
    folder.write_manifest(manifest_of())
    later = folder.commit(folder.read_manifest(), 12, 1)
    assert folder.read_manifest() == later == manifest_of(12, 1)
    assert [path.name for path in folder.out.iterdir()] == [MANIFEST_NAME]


def test_a_crash_while_a_manifest_is_written_leaves_the_old_one(folder, monkeypatch):
    folder.write_manifest(manifest_of(3))

    def crash(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(state.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.commit(manifest_of(3), 6, 1)
    assert folder.read_manifest().steps_done == 3


def test_a_manifest_is_on_disk_before_it_is_renamed_and_its_folder_after(folder, monkeypatch):
    events = []
    real = {name: getattr(state.os, name) for name in ("fsync", "replace")}
    for name, call in real.items():
        monkeypatch.setattr(
            state.os, name, lambda *a, name=name, call=call: (events.append(name), call(*a))[1]
        )
    folder.write_manifest(manifest_of())
    assert events == ["fsync", "replace", "fsync"]


def test_a_commit_that_fails_names_the_file(folder, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(state.os, "fsync", full)
    with pytest.raises(StoreError, match="cannot commit") as caught:
        folder.write_manifest(manifest_of())
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == folder.out / MANIFEST_NAME


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a manifest"),
        ('{"version": "1"}', "not a manifest"),
        (
            json.dumps(
                {
                    "version": "1",
                    "problem": {},
                    "folder": "",
                    "steps_done": 0,
                    "parity": 0,
                    "format": 99,
                }
            ),
            "format 99; this version reads 1",
        ),
        (
            json.dumps(
                {
                    "version": "1",
                    "problem": {},
                    "folder": "",
                    "steps_done": 0,
                    "parity": 0,
                    "more": 1,
                }
            ),
            "not a manifest",
        ),
    ],
)
def test_what_is_no_manifest_is_refused(text, words, folder):
    (folder.out / MANIFEST_NAME).write_text(text)
    with pytest.raises(UsageError, match=words):
        folder.read_manifest()


@pytest.mark.parametrize("parity", [0, 1])
def test_finishing_moves_the_results_of_one_parity_and_drops_the_rest(folder, parity):
    fill(folder)
    folder.write_manifest(manifest_of())
    assert folder.finish(LEVELS, parity) == {"u": "u.npy", "u.previous": "u.previous.npy"}
    assert {path.name: path.read_text() for path in folder.out.iterdir()} == {
        "u.npy": f"u.{parity}.npy",
        "u.previous.npy": f"u.previous.{parity}.npy",
    }
    assert not folder.scratch.exists()


@pytest.mark.parametrize("after", range(9))
def test_finishing_again_after_any_interruption_ends_the_same(folder, after, monkeypatch):
    fill(folder)
    folder.write_manifest(manifest_of())
    calls = iter(range(100))

    def interrupted(call):
        def act(*arguments, **named):
            if next(calls) == after:
                raise KeyboardInterrupt
            return call(*arguments, **named)

        return act

    with monkeypatch.context() as patch:
        patch.setattr(state, "move", interrupted(state.move))
        patch.setattr(state.Path, "unlink", interrupted(state.Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            folder.finish(LEVELS, 1)
    assert folder.read_manifest()
    assert folder.finish(LEVELS, 1) == {"u": "u.npy", "u.previous": "u.previous.npy"}
    assert {path.name: path.read_text() for path in folder.out.iterdir()} == {
        "u.npy": "u.1.npy",
        "u.previous.npy": "u.previous.1.npy",
    }
    assert not folder.scratch.exists()


def test_files_of_others_in_scratch_stay(folder):
    fill(folder)
    (folder.scratch / "mine.npy").write_text("precious")
    folder.discard(LEVELS)
    assert [path.name for path in folder.scratch.iterdir()] == ["mine.npy"]


@pytest.mark.parametrize(
    "name", ["out/u.npy", "out/u.previous.npy", "scratch/c.npy", "scratch/u.1.npy"]
)
def test_existing_files_stop_a_run(folder, name):
    folder.check_free(LEVELS)
    (folder.out.parent / name).touch()
    with pytest.raises(UsageError, match="exists and is not overwritten") as caught:
        folder.check_free(LEVELS)
    assert name in str(caught.value)
    assert "resume" not in str(caught.value)
    folder.write_manifest(manifest_of())
    with pytest.raises(UsageError, match="outgrid resume continues"):
        folder.check_free(LEVELS)


def test_a_file_is_copied_where_it_cannot_be_renamed(tmp_path, monkeypatch):
    source, target = tmp_path / "a.npy", tmp_path / "b" / "a.npy"
    target.parent.mkdir()
    np.save(source, np.arange(5))

    class Elsewhere:
        st_dev = -1

    real = state.Path.stat
    monkeypatch.setattr(
        state.Path, "stat", lambda self, **k: Elsewhere() if self == source else real(self, **k)
    )
    move(source, target)
    monkeypatch.undo()
    assert np.load(target).tolist() == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.rglob("*.npy*")] == ["a.npy"]


def test_a_result_that_cannot_be_moved_is_named(tmp_path):
    with pytest.raises(StoreError, match="cannot put the result in place") as caught:
        move(tmp_path / "none.npy", tmp_path / "u.npy")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.path == tmp_path / "u.npy"
