import errno
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from outgrid.errors import StoreError, UsageError
from outgrid.plan.schedule.rings import Arrival
from outgrid.runs import manifest, state
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, read_manifest, write_manifest
from outgrid.runs.places import OWNER_NAME
from outgrid.runs.seals import level_name
from outgrid.runs.state import RunFolder, move
from outgrid.storage.sums import sums_path

LEVELS = (
    Arrival("u", 0, 0, constant=False),
    Arrival("u", -1, 1, constant=False),
    Arrival("c", 0, 1, constant=True),
)


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path / "out", tmp_path / "scratch")
    found.out.mkdir()
    found.scratch.mkdir()
    return found


def manifest_of(steps_done=0, parity=0, **changes):
    return Manifest(
        **{
            "version": "1",
            "run": "mine",
            "problem": {"a": 1},
            "folder": "../scratch",
            "files": RunFolder(Path(), Path()).working.names(LEVELS),
            "results": RunFolder(Path(), Path()).result_names(LEVELS),
            "steps_done": steps_done,
            "parity": parity,
        }
        | changes
    )


def fill(folder):
    """Working files that hold their own names."""
    for level in LEVELS:
        for parity in (0, 1):
            path = folder.working.path(level, parity)
            path.write_text(path.name)
            sums_path(path).write_text(f"sums of {path.name}")


def test_levels_have_names_and_evolving_ones_two_files(folder):
    assert [level_name(level) for level in LEVELS] == ["u", "u.previous", "c"]
    names = [[folder.working.path(level, parity).name for parity in (0, 1)] for level in LEVELS]
    assert names == [
        ["u.0.npy", "u.1.npy"],
        ["u.previous.0.npy", "u.previous.1.npy"],
        ["c.npy"] * 2,
    ]


def test_a_manifest_is_read_as_it_was_written(folder):
    write_manifest(folder.out, manifest_of())
    write_manifest(folder.out, manifest_of(12, 1))
    assert read_manifest(folder.out) == manifest_of(12, 1)
    assert [path.name for path in folder.out.iterdir()] == [MANIFEST_NAME]


def test_a_crash_while_a_manifest_is_written_leaves_the_old_one(folder, monkeypatch):
    write_manifest(folder.out, manifest_of(3))

    def crash(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(state.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_manifest(folder.out, manifest_of(6, 1))
    assert read_manifest(folder.out).steps_done == 3


def test_a_manifest_is_on_disk_before_it_is_renamed_and_its_folder_after(folder, monkeypatch):
    events = []
    real = {name: getattr(state.os, name) for name in ("fsync", "replace")}
    for name, call in real.items():
        monkeypatch.setattr(
            state.os, name, lambda *a, name=name, call=call: (events.append(name), call(*a))[1]
        )
    write_manifest(folder.out, manifest_of())
    assert events == ["fsync", "replace", "fsync"]


def test_a_commit_that_fails_names_the_file(folder, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(state.os, "fsync", full)
    with pytest.raises(StoreError, match="cannot commit") as caught:
        write_manifest(folder.out, manifest_of())
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == folder.out / MANIFEST_NAME


def written(**changes):
    return json.dumps(json.loads(msgspec.json.encode(manifest_of())) | changes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a manifest"),
        ("[" * 100_000, "not a manifest"),
        ('{"version": "1"}', "not a manifest"),
        (written(more=1), "not a manifest"),
        (written(format=99, version="7.0", more=1), "format 99, written by outgrid 7.0; this"),
        ('{"version": "0.1.0", "format": 1, "problem": {}}', "resume the run with that version"),
        (written(files=["../u.0.npy"]), "outside of the run's folders"),
        (written(results=["/etc/passwd"]), "outside of the run's folders"),
        (written(files=[".."]), "outside of the run's folders"),
        (written(steps_done="3"), "not a manifest"),
    ],
)
def test_what_is_no_manifest_is_refused(text, words, folder):
    (folder.out / MANIFEST_NAME).write_text(text)
    with pytest.raises(UsageError, match=words):
        read_manifest(folder.out)


def finish(folder, manifest, parity):
    fields = folder.place_results(LEVELS, parity)
    folder.abandon(manifest)
    return fields


@pytest.mark.parametrize("parity", [0, 1])
def test_finishing_moves_the_results_of_one_parity_and_drops_the_rest(folder, parity):
    folder.create(manifest_of())
    fill(folder)
    assert finish(folder, manifest_of(), parity) == {"u": "u.npy", "u.previous": "u.previous.npy"}
    assert {path.name: path.read_text() for path in folder.out.iterdir()} == {
        "u.npy": f"u.{parity}.npy",
        "u.npy.xxh3": f"sums of u.{parity}.npy",
        "u.previous.npy": f"u.previous.{parity}.npy",
        "u.previous.npy.xxh3": f"sums of u.previous.{parity}.npy",
    }
    assert not folder.scratch.exists()


def test_finishing_again_after_any_interruption_ends_the_same(folder, monkeypatch):
    for after in range(30):
        folder.create(manifest_of())
        fill(folder)
        calls = iter(range(100))

        def interrupted(call, calls=calls, after=after):
            def act(*arguments, **named):
                if next(calls) == after:
                    raise KeyboardInterrupt
                return call(*arguments, **named)

            return act

        with monkeypatch.context() as patch:
            patch.setattr(state, "move", interrupted(state.move))
            patch.setattr(state, "sync_folder", interrupted(state.sync_folder))
            patch.setattr(manifest, "sync_folder", interrupted(manifest.sync_folder))
            patch.setattr(state.Path, "unlink", interrupted(state.Path.unlink))
            try:
                finish(folder, manifest_of(), 1)
            except KeyboardInterrupt:
                if (folder.out / MANIFEST_NAME).exists():
                    found = finish(folder, read_manifest(folder.out), 1)
                    assert found == {"u": "u.npy", "u.previous": "u.previous.npy"}
            else:
                break
        assert {path.name: path.read_text() for path in folder.out.iterdir()} == {
            "u.npy": "u.1.npy",
            "u.npy.xxh3": "sums of u.1.npy",
            "u.previous.npy": "u.previous.1.npy",
            "u.previous.npy.xxh3": "sums of u.previous.1.npy",
        }
        assert not folder.scratch.exists()
        for path in folder.out.iterdir():
            path.unlink()
    else:
        raise AssertionError("more calls than were interrupted")


def test_what_a_manifest_does_not_own_stays(folder):
    folder.create(manifest_of())
    fill(folder)
    (folder.scratch / "mine.npy").write_text("precious")
    (folder.out / "u.npy").write_text("a result in place")
    left = "0123456789abcdef.new"  # as files that are replaced whole are written first
    for name in ("u.npy.new", "samples.npy.new", f"samples.npy.new.{left}", f"record.json.{left}"):
        (folder.out / name).write_text("half of a copy")
    folder.abandon(manifest_of())
    assert [path.name for path in folder.scratch.iterdir()] == ["mine.npy"]
    assert [path.name for path in folder.out.iterdir()] == ["u.npy"]


@pytest.mark.parametrize("mark", [None, "another"])
def test_files_in_a_scratch_folder_of_another_run_stay(folder, mark):
    """The first run's scratch was cleared by hand, and another one works there now."""
    folder.create(manifest_of())
    fill(folder)
    if mark is None:
        (folder.scratch / OWNER_NAME).unlink()
    else:
        RunFolder(folder.out.parent / "b", folder.scratch).create(manifest_of(run=mark))
    before = sorted(folder.scratch.iterdir())
    with pytest.raises(
        UsageError, match="belong to another run" if mark else "has no working files"
    ):
        folder.check_owner(manifest_of())
    folder.abandon(manifest_of())
    assert sorted(folder.scratch.iterdir()) == before


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
    write_manifest(folder.out, manifest_of())
    with pytest.raises(UsageError, match="outgrid resume continues"):
        folder.check_free(LEVELS)


def test_a_scratch_folder_in_use_is_refused(folder):
    other = RunFolder(folder.out.parent / "other", folder.scratch)
    other.create(manifest_of())
    with pytest.raises(UsageError, match=f"in use by the run in {other.out}"):
        folder.check_free(LEVELS)


def test_a_run_that_keeps_its_files_inside_can_be_moved(tmp_path):
    inside = RunFolder(tmp_path / "out", tmp_path / "out" / "scratch")
    assert inside.relative_scratch() == "scratch"
    inside.create(manifest_of(folder=inside.relative_scratch()))
    (tmp_path / "out").rename(tmp_path / "moved")
    folder, manifest = RunFolder.of_manifest(tmp_path / "moved")
    folder.check_owner(manifest)
    assert folder.scratch == tmp_path / "moved" / "scratch"
    assert RunFolder(tmp_path, Path("/flash")).relative_scratch() == "/flash"


def test_a_file_is_copied_where_it_cannot_be_renamed(tmp_path, monkeypatch):
    source, target = tmp_path / "a.npy", tmp_path / "b" / "a.npy"
    target.parent.mkdir()
    np.save(source, np.arange(5))
    size = source.stat().st_size
    state.partial_path(target).write_bytes(bytes(2 * size))  # what was reserved, with halos

    monkeypatch.setattr(state, "mount_of", lambda folder: folder)
    move(source, target)
    assert np.load(target).tolist() == [0, 1, 2, 3, 4]
    assert target.stat().st_size == size
    assert [path.name for path in tmp_path.rglob("*.npy*")] == ["a.npy"]


def test_a_result_that_cannot_be_moved_is_named(tmp_path):
    with pytest.raises(StoreError, match="cannot move the result into place") as caught:
        move(tmp_path / "none.npy", tmp_path / "u.npy")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.path == tmp_path / "u.npy"
