"""Fields over several folders or on raw devices: the same bytes, and nothing of others touched."""

import os
import shutil
import struct
import subprocess

import numpy as np
import pytest

from outgrid import execution, pipeline
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, StoreError, UsageError
from outgrid.runs.leftovers import leftovers
from outgrid.runs.verify import verify
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore

SHAPE = (40, 31, 67)  # rows of 536 bytes: a stripe cuts them
DEVICE_BYTES = 16 << 20


def problem():
    values = np.random.default_rng(3).random(SHAPE)
    initial = {"u": values, "c": 0.1}
    return Problem("wave:2", SHAPE, "float64", 9, {}, "frozen", initial)


def options(out, scratch, **others):
    given = {"tier": "direct", "depth": 2, "slab_planes": 4, "threads": 1, "commit_every": 0}
    return RunOptions.of(memory="200MiB", out=out, scratch=scratch, **(given | others))


def results(out):
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    pipeline.run(problem(), options(out, out / "scratch"))
    return results(out)


@pytest.fixture
def devices(tmp_path):
    """Two loop devices, detached whatever happens."""
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("block devices are made by root, with losetup")
    made = []
    try:
        for number in range(2):
            image = tmp_path / f"image{number}"
            image.write_bytes(b"")
            os.truncate(image, DEVICE_BYTES)
            done = subprocess.run(
                ["losetup", "--find", "--show", str(image)], capture_output=True, text=True
            )
            if done.returncode != 0:
                pytest.skip(f"no loop device: {done.stderr.strip()}")
            made.append(done.stdout.strip())
        yield made
    finally:
        for device in made:
            subprocess.run(["losetup", "--detach", device], check=True)


def fail_at(monkeypatch, *indices):
    original, calls = DirectStore.put, iter(range(10**9))

    def faulty(self, *arguments):
        if next(calls) in indices:
            return self._transfers.fail(StoreError("on purpose", path=self.path, errno=5))
        return original(self, *arguments)

    monkeypatch.setattr(DirectStore, "put", faulty)


@pytest.mark.parametrize(
    ("stripe", "others"),
    [("4KiB", {}), ("64KiB", {"strip_rows": 9}), (None, {}), ("8KiB", {"tier": "memory"})],
    ids=str,
)
def test_folders_together_give_the_same_bytes(stripe, others, tmp_path, answer):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    out = tmp_path / "run"
    result = pipeline.run(problem(), options(out, folders, stripe=stripe, **others))
    assert results(out) == answer
    assert not any(folder.exists() for folder in folders)
    measured = result.record.measured
    assert measured.exported_bytes == 2 * problem().field_bytes
    assert (measured.read_bytes, measured.written_bytes) == (
        result.record.planned["read_bytes"],
        result.record.planned["written_bytes"],
    )
    assert ("striped" if stripe else "in turn") in result.record.spread
    assert not verify(out).errors


def test_striped_fields_are_verified_resumed_and_cleaned(tmp_path, answer, monkeypatch):
    folders, out = [tmp_path / name for name in ("a", "b")], tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, 30)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out, folders, stripe="4KiB"))
    assert all(len([*folder.glob("*.spread.*")]) >= 5 for folder in folders)
    assert not verify(out).errors
    with pytest.raises(UsageError, match="in use by the run in"):
        pipeline.run(problem(), options(tmp_path / "other", folders[1]))
    listed = leftovers(out).files
    assert {path.parent for path in listed} >= set(folders)
    again = tmp_path / "copy"
    shutil.copytree(out, again)
    pipeline.resume(out, options(None, None, depth=3))
    assert results(out) == answer
    assert not any(folder.exists() for folder in folders)
    # Its folders are gone: what is left of the copy is what lies beside its manifest.
    with pytest.raises(UsageError, match="has no working files"):
        pipeline.resume(again, options(None, None))


def test_damage_in_a_part_is_named(tmp_path, monkeypatch):
    folders, out = [tmp_path / name for name in ("a", "b")], tmp_path / "run"
    fail_at(monkeypatch, 30)
    with pytest.raises(StoreError, match="errno 5"):
        pipeline.run(problem(), options(out, folders, stripe="4KiB"))
    for part in folders[1].glob("c.spread.1"):
        with part.open("r+b") as file:
            file.seek(5000)
            file.write(b"changed")
    (error,) = verify(out).errors
    assert "did not match the checksums" in str(error)
    leftovers(out, delete=True)
    assert not any(folder.exists() for folder in folders)


def test_a_run_killed_between_its_last_sweep_and_its_results_is_resumed(
    tmp_path, answer, monkeypatch
):
    folders, out = [tmp_path / name for name in ("a", "b")], tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(execution, "export", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(problem(), options(out, folders, stripe="4KiB"))
    pipeline.resume(out, options(None, None))
    assert results(out) == answer


@pytest.mark.parametrize("stripe", ["8KiB", None])
def test_raw_devices_give_the_same_bytes_and_are_left_free(
    stripe, devices, tmp_path, answer, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, 30)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out, devices, stripe=stripe))
    with pytest.raises(UsageError, match="in use by the run in"):
        pipeline.run(problem(), options(tmp_path / "other", devices[0]))
    assert not verify(out).errors
    for other in ({"scratch": devices[:1]}, {"scratch": devices, "stripe": "64KiB"}):
        with pytest.raises(UsageError, match=f"the files of the run are in {devices[0]}, "):
            pipeline.resume(out, options(**({"out": None} | other)))
    result = pipeline.resume(out, options(None, devices, stripe=stripe, depth=3))
    assert results(out) == answer
    assert "on 2 devices" in result.record.spread
    pipeline.run(problem(), options(tmp_path / "alone", devices[0]))
    assert results(tmp_path / "alone") == answer


def test_a_device_that_carries_something_is_refused_unless_named_twice(devices, tmp_path, answer):
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no file system can be made: mkfs.ext4 is missing")
    device = devices[0]
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    before = (tmp_path / "image0").read_bytes()
    with pytest.raises(UsageError, match=f"{device} contains ext4 .* --erase {device}"):
        pipeline.run(problem(), options(tmp_path / "run", device))
    assert (tmp_path / "image0").read_bytes() == before
    assert not (tmp_path / "run").exists()
    place = tmp_path / "mounted"
    place.mkdir()
    if subprocess.run(["mount", device, str(place)], check=False).returncode == 0:
        try:
            with pytest.raises(UsageError, match=f"{device} is in use"):
                pipeline.run(problem(), options(tmp_path / "run", device, erase=device))
        finally:
            subprocess.run(["umount", str(place)], check=True)
    pipeline.run(problem(), options(tmp_path / "run", device, erase=device))
    assert results(tmp_path / "run") == answer
    entry = struct.pack("<8B2L", 0, 0, 2, 0, 0x83, 0, 2, 0, 2048, 1000)
    with open(device, "r+b", buffering=0) as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    with pytest.raises(UsageError, match=f"{device} contains dos"):
        pipeline.run(problem(), options(tmp_path / "other", device))


def test_devices_of_a_run_that_is_gone_are_free_again_when_named_twice(
    devices, tmp_path, answer, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        fail_at(patch, 30)
        with pytest.raises(StoreError, match="errno 5"):
            pipeline.run(problem(), options(out, devices, stripe="4KiB"))
    with pytest.raises(UsageError, match=f"remove it with outgrid clean {out}"):
        pipeline.run(problem(), options(tmp_path / "other", devices))
    shutil.rmtree(out)
    with pytest.raises(UsageError, match=f"no manifest there any more, give --erase {devices[0]}"):
        pipeline.run(problem(), options(out, devices))
    with pytest.raises(UsageError, match=f"{devices[1]} is in use by the run in"):
        pipeline.run(problem(), options(out, devices, erase=devices[0]))
    pipeline.run(problem(), options(out, devices, erase=devices))
    assert results(out) == answer


def test_a_device_that_is_too_small_is_refused_with_figures(devices, tmp_path):
    large = Problem("heat7", (64, 128, 128), "float64", 2, {"k": 0.1}, initial={"u": 0.0})
    with pytest.raises(StoreError, match=r"has 16\.0 MiB and the run needs 18\.0 MiB"):
        pipeline.run(large, options(tmp_path / "run", devices[0]))
    assert not (tmp_path / "run").exists()
    pipeline.run(large, options(tmp_path / "run", devices, stripe="1MiB"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stripe": "1MiB"}, "name them all in scratch"),
        ({"scratch": ["a", "b"], "stripe": 1000}, "multiple of 4096"),
        ({"scratch": ["a", "b"], "tier": "mmap"}, "mmap does not spread fields"),
        ({"scratch": ["a", "b"], "tier": "remote"}, "scratch names 2 places: name one"),
        ({"scratch": ["a", "a"]}, "must name different places"),
        ({"scratch": "/dev/no-such-disk"}, "not a block device"),
        ({"scratch": ["a", "/dev/no-such-disk"]}, "not a block device"),
        ({"scratch": "/dev/zero"}, "not a block device"),
        ({"erase": "a"}, "erase names .*/a, which is not a block device of scratch"),
        (
            {"erase": "/dev/no-such-disk"},
            "erase names /dev/no-such-disk, which is not a block device",
        ),
    ],
)
def test_places_that_make_no_sense_are_refused(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        pipeline.run(problem(), options(**({"out": "run", "scratch": "a"} | given)))


def test_a_plan_says_that_a_device_is_too_small_or_carries_something(devices, tmp_path):
    """And what a run would be refused for; nothing of the device changes."""
    small, large = (
        Problem("heat7", (planes, 128, 128), "float64", 2, {"k": 0.1}, initial={"u": 0.0})
        for planes in (16, 64)
    )
    run = options(tmp_path / "run", devices[0])
    assert pipeline.objections(small, run, pipeline.plan(small, run)) == []
    (found,) = pipeline.objections(large, run, pipeline.plan(large, run))
    assert "the device has 16.0 MiB and the run needs 18.0 MiB there" in found
    with open(devices[0], "r+b", buffering=0) as file:
        file.seek(510)
        file.write(b"\x55\xaa")
    before = (tmp_path / "image0").read_bytes()
    (found,) = pipeline.objections(small, run, pipeline.plan(small, run))
    assert f"{devices[0]} contains dos and is not overwritten" in found
    assert (tmp_path / "image0").read_bytes() == before
    assert not (tmp_path / "run").exists()


def test_a_device_is_erased_only_where_scratch_names_it(devices, tmp_path):
    before = (tmp_path / "image1").read_bytes()
    with pytest.raises(UsageError, match=f"erase names {devices[1]}, which is not a block device"):
        pipeline.run(problem(), options(tmp_path / "run", devices[0], erase=devices))
    assert (tmp_path / "image1").read_bytes() == before


def test_fields_in_memory_go_to_no_device(devices, tmp_path):
    with pytest.raises(UsageError, match="cannot use block devices"):
        pipeline.run(problem(), options(tmp_path / "run", devices[0], tier="mmap"))


def test_a_full_folder_is_named_before_anything_is_made(tmp_path, monkeypatch):
    class Full:
        f_bavail, f_frsize = 100, 4096

    monkeypatch.setattr("outgrid.runs.space.os.statvfs", lambda _: Full)
    with pytest.raises(InfeasiblePlan, match="has 400 KiB of free space"):
        pipeline.run(problem(), options(tmp_path / "run", [tmp_path / "a", tmp_path / "b"]))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("given", ["out", "scratch"])
def test_a_folder_whose_path_cannot_be_written_down_is_refused(given, tmp_path):
    odd = tmp_path / os.fsdecode(b"odd \xff")
    places = {"out": tmp_path / "run", "scratch": tmp_path / "scratch"} | {given: odd}
    with pytest.raises(UsageError, match=r"odd \\xff' is not UTF-8"):
        pipeline.run(problem(), options(**places))
    assert not list(tmp_path.iterdir())
