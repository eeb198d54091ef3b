"""Initial values that are read where they lie: the same bytes, and the files stay as they were."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import Stopped, StoreError, UsageError
from outgrid.execute import streaming
from outgrid.formats import InputFile
from outgrid.formats.npy import header_bytes
from outgrid.runs import ledger
from outgrid.runs.group import durable
from outgrid.runs.manifest import MANIFEST_NAME, read_manifest
from outgrid.runs.verify import verify
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.testing.strategies import problems, run_options

SHAPE, STEPS = (31, 17, 40), 11
WAY = {"memory": "1GiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
STRIPS = {"strip_rows": 5, "commit_every": 0}
SHARE = settings.default.max_examples

KNOWN = st.one_of(
    *(
        problems(st.just(rule), around=st.just(boundary_of(around, None)), dtypes={})
        for rule, around in (
            (resolve("wave:4").trace(2), "dirichlet"),
            (resolve("heat7").trace(3), 0.5),
            (resolve("wave:8").trace(3), "frozen"),
            (resolve("wave:2").trace(3), {"z": "periodic", "y+": "neumann"}),
            (resolve("heat7").trace(3), {"y": "periodic"}),
        )
    )
)


def values(seed, shape=SHAPE, dtype="float32"):
    return np.random.default_rng(seed).random(shape).astype(dtype) * np.float32(0.1)


@pytest.fixture
def model(tmp_path):
    """The folder of the files that runs begin with."""
    folder = tmp_path / "model"
    folder.mkdir()
    for number, name in enumerate(("u", "before", "c")):
        np.save(folder / f"{name}.npy", values(number))
    return folder


def problem(model, steps=STEPS, **initial):
    names = {"u": "u.npy", "c": "c.npy"} | {
        name.replace("_", "."): value for name, value in initial.items()
    }
    given = {
        name: str(model / value) if isinstance(value, str) else value
        for name, value in names.items()
        if value is not None
    }
    return Problem("wave:4", SHAPE, "float32", steps, initial=given)


def run(out, posed, **given):
    return pipeline.run(posed, RunOptions.of(out=out, **(WAY | given)))


def resume(out, **given):
    return pipeline.resume(out, RunOptions.of(out=out, **(WAY | given)))


def from_arrays(out, posed, **given):
    """The bytes of the same run from arrays, by name."""
    arrays = {
        name: np.load(value.path) if isinstance(value, InputFile) else value
        for name, value in posed.initial.items()
    }
    return fields(run(out, posed.replace(initial=arrays), **given))


def fields(result):
    return {name: result[name].tobytes() for name in result}


def read(result):
    return tuple(result.record.planned["uncopied"])


def digests(folder):
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def cut_off(out, posed, monkeypatch, at, **given):
    """Let a run die right after it has committed for the `at`-th time."""
    original, written = ledger.write_manifest, []

    def die(where, manifest):
        original(where, manifest)
        written.append(manifest)
        if len(written) == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_manifest", die)
        with pytest.raises((KeyboardInterrupt, Stopped)):
            run(out, posed, **given)
    return written[-1]


def lay(folder, name, array, how):
    """A file of an array, laid out in one of several ways."""
    path = folder / f"{name}.npy"
    if how == "save":
        np.save(path, array)
    elif how == "blocks":
        path.write_bytes(header_bytes(array.shape, array.dtype) + array.tobytes())
    else:
        path = folder / f"{name}.bin"
        path.write_bytes(bytes(how) + array.tobytes())
        return InputFile(str(path), shape=array.shape, dtype=str(array.dtype), offset=how)
    return str(path)


@settings(max_examples=SHARE // 4)
@given(KNOWN, st.data())
def test_files_give_the_bytes_of_arrays(posed, data):
    options = data.draw(run_options(posed))
    with tempfile.TemporaryDirectory() as place:
        folder, model = Path(place), Path(place) / "model"
        model.mkdir()
        initial, arrays = {}, {}
        for name in posed.initial:
            field = name.removesuffix(PREVIOUS)
            if name != field and posed.initial[name] is posed.initial[field]:
                continue
            array = values(len(name), posed.shape, posed.dtype_of(field))
            how = data.draw(st.sampled_from(["save", "blocks", 0, 512, 36]))
            arrays[name], initial[name] = array, lay(model, name, array, how)
        before = digests(model)
        wanted = pipeline.run(
            posed.replace(initial=arrays), msgspec.structs.replace(options, out=folder / "arrays")
        )
        found = pipeline.run(
            posed.replace(initial=initial), msgspec.structs.replace(options, out=folder / "files")
        )
        assert fields(found) == fields(wanted)
        assert found.record.checksums == wanted.record.checksums
        assert found.record.warnings == wanted.record.warnings
        assert digests(model) == before
        assert {path.name for path in found.out.iterdir()} == {
            path.name for path in wanted.out.iterdir()
        }
        streamed = options.tier == "direct" and options.scheme != "overlapped" and posed.steps
        if streamed and "c" in initial:
            assert "c" in read(found)


def test_what_lies_so_is_not_filled_and_takes_no_room(tmp_path, model):
    posed = problem(model)
    found = run(tmp_path / "run", posed)
    wanted = from_arrays(tmp_path / "arrays", posed)
    assert fields(found) == wanted
    assert read(found) == ("u", "u.previous", "c")
    field_bytes = 4 * np.prod(SHAPE)
    assert found.record.planned["fill_bytes"] == 0
    assert found.record.planned["disk_bytes"] == 4 * field_bytes
    measured = found.record.measured
    assert (measured.fill_read_bytes, measured.fill_written_bytes) == (0, 0)
    assert measured.read_bytes == found.record.planned["read_bytes"]


def test_a_model_that_cannot_be_written_is_read(tmp_path, model):
    for path in (*model.iterdir(), model):
        path.chmod(0o500 if path.is_dir() else 0o400)
    posed = problem(model)
    assert fields(run(tmp_path / "run", posed)) == from_arrays(tmp_path / "arrays", posed)


@pytest.mark.parametrize(
    "way", [{}, STRIPS, {"pack": "always"}], ids=["planes", "strips", "packed"]
)
def test_results_of_a_run_are_read_and_compared_with_their_checksums(tmp_path, model, way):
    first = run(tmp_path / "first", problem(model))
    went = {"u": "../first/u.npy", "u_previous": "../first/u.previous.npy"}
    posed = problem(model, **went)
    second = run(tmp_path / "second", posed, **way)
    assert read(second) == ("u", "u.previous", "c")
    whole = run(tmp_path / "whole", problem(model, 2 * STEPS))
    assert fields(second) == fields(whole)
    path, offset = first.path("u"), 4096 + 4 * 12345
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=times)  # a bit that flipped: nobody has written it
    with pytest.raises(StoreError, match="did not match the checksums") as failed:
        run(tmp_path / "third", posed, **way)
    assert str(path) in str(failed.value)


def test_results_that_were_written_since_are_files_like_others(tmp_path, model):
    first = run(tmp_path / "first", problem(model))
    array = np.lib.format.open_memmap(first.path("u"), "r+")
    array[3] += 1
    array.flush()
    late = time.time() + 60
    os.utime(first.path("u"), (late, late))
    posed = problem(model, u="../first/u.npy")
    found = run(tmp_path / "second", posed)
    assert read(found) == ("u", "u.previous", "c")
    assert fields(found) == from_arrays(tmp_path / "arrays", posed)


COPIES = {
    "numbers at faces": ({"boundary": 0.5}, ("c",), "fixed layers"),
    "another level before": ({"before": "before.npy"}, ("u", "c"), "those of u"),
    "an array before": ({"before": 0.25}, ("u", "c"), ""),
    "no layers": ({"before": "before.npy", "boundary": "neumann"}, ("u", "u.previous", "c"), ""),
    "another type": ({"dtypes": {"c": "float64"}, "dtype": "float64"}, (), "float32"),
    "in a part": ({"regions": {"c": None}}, ("u", "u.previous"), "part of the grid"),
    "a preview": ({"preview": 64}, ("c",), "preview"),
    "no steps": ({"steps": 0}, ("c",), "no sweep writes"),
    "two folders": ({"scratch": ["one", "two"]}, (), ""),
    "blocks": ({"scheme": "overlapped", "block": [8, 8, 36]}, (), ""),
    "mapped": ({"tier": "mmap"}, (), ""),
    "in memory": ({"tier": "memory"}, ("u", "u.previous", "c"), ""),
    "one file": ({"file": "all.h5"}, ("u", "u.previous", "c"), ""),
}


@pytest.mark.parametrize("case", COPIES)
def test_what_a_fill_does_besides_copying_is_done(tmp_path, model, case):
    given, expected, why = COPIES[case]
    given = dict(given)
    before = given.pop("before", None)
    posed = problem(model, given.pop("steps", STEPS), u_previous=before)
    changes = {key: given.pop(key) for key in ("boundary", "dtypes", "dtype") if key in given}
    if given.pop("regions", None):
        changes["regions"] = {"c": og.Box(z=(0, 20))}
    if changes:
        posed = posed.replace(**changes)
    if "scratch" in given:
        given["scratch"] = [tmp_path / name for name in given["scratch"]]
    way = {
        key: value for key, value in WAY.items() if "scheme" not in given or key != "slab_planes"
    }
    made = []
    for name, each in (("files", posed), ("arrays", None)):
        if each is None:
            arrays = {
                level: np.load(value.path) if isinstance(value, InputFile) else value
                for level, value in posed.initial.items()
            }
            each = posed.replace(initial=arrays)
        if "file" in given:
            pytest.importorskip("h5py")
        out = tmp_path / name / "run"
        out.parent.mkdir()
        made.append(pipeline.run(each, RunOptions.of(out=out, **(way | given))))
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        shutil.rmtree(tmp_path / "two", ignore_errors=True)
    found, wanted = made
    assert read(found) == expected
    assert read(wanted) == ()
    assert fields(found) == fields(wanted)
    assert any(why in note for note in found.record.planned["notes"])


@pytest.mark.parametrize("way", [{}, STRIPS], ids=["planes", "strips"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])
def test_a_run_that_was_cut_off_goes_on(tmp_path, model, monkeypatch, way, at):
    posed = problem(model)
    last = cut_off(tmp_path / "run", posed, monkeypatch, at, **{"commit_every": 1e-9, **way})
    assert last.uncopied.keys() == {"u", "u.previous", "c"}
    if last.steps_done:  # what it began with is not needed any more
        (model / "u.npy").unlink()
    assert not verify(tmp_path / "run").errors
    np.save(model / "kept.npy", values(0))
    found = resume(tmp_path / "run", **({} if at % 2 else {"depth": 2, "tier": "mmap"}))
    assert fields(found) == from_arrays(tmp_path / "arrays", problem(model, u="kept.npy"))


def change(path, how):
    if how == "gone":
        path.unlink()
    elif how == "cut":
        os.truncate(path, path.stat().st_size - 8)
    else:
        array = np.lib.format.open_memmap(path, "r+")
        array[5] += 1
        array.flush()
        later = time.time() + 5
        os.utime(path, (later, later))


@pytest.mark.parametrize("how", ["gone", "cut", "written"])
@pytest.mark.parametrize(("name", "at"), [("u", 1), ("c", 1), ("c", 8)])
def test_a_resume_refuses_a_file_that_changed(tmp_path, model, monkeypatch, how, name, at):
    out, path = tmp_path / "run", model / f"{name}.npy"
    cut_off(out, problem(model), monkeypatch, at, commit_every=1e-9)
    kept = path.read_bytes()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    change(path, how)
    for tier in ("direct", "memory"):
        with pytest.raises(UsageError, match=r"changed|cannot be read") as refused:
            resume(out, tier=tier)
        assert str(path) in str(refused.value)
    assert str(path) in str(verify(out).errors[0])
    path.write_bytes(kept)
    os.utime(path, ns=times)
    assert fields(resume(out)) == from_arrays(tmp_path / "arrays", problem(model))


@pytest.mark.parametrize(
    "changed", [{"path": "u.npy"}, {"path": "/a\0b"}, {"offset": -1}, {"offset": 1 << 60}]
)
def test_a_manifest_that_does_not_say_where_a_level_lies_is_refused(
    tmp_path, model, monkeypatch, changed
):
    out = tmp_path / "run"
    cut_off(out, problem(model), monkeypatch, 1, commit_every=1e-9)
    told = json.loads((out / MANIFEST_NAME).read_text())
    told["uncopied"]["c"] |= changed
    (out / MANIFEST_NAME).write_text(json.dumps(told))
    with pytest.raises(UsageError, match="does not say in which file c lies"):
        resume(out)


@pytest.mark.parametrize("name", ["u", "c"])
def test_a_file_that_changes_under_a_run_ends_it(tmp_path, model, name):
    path, told = model / f"{name}.npy", []

    def meddle(progress):
        if progress.sweep == 0 and progress.slab > 2 and not told:
            told.append(progress)
            change(path, "written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
        with pytest.raises(UsageError, match="changed after the run had begun"):
            pipeline.run(problem(model), RunOptions.of(out=tmp_path / "run", **WAY), meddle)
    assert told


def test_a_file_that_is_removed_under_a_run_is_read_to_the_end(tmp_path, model):
    posed = problem(model)
    wanted = from_arrays(tmp_path / "arrays", posed)

    def remove(progress):
        shutil.rmtree(model, ignore_errors=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
        found = pipeline.run(posed, RunOptions.of(out=tmp_path / "run", **WAY), remove)
    assert not model.exists()
    assert fields(found) == wanted


@pytest.mark.parametrize(
    "way", [{}, STRIPS, {"pack": "always"}], ids=["planes", "strips", "packed"]
)
@pytest.mark.parametrize("name", ["u", "c"])
def test_values_that_are_not_finite_are_told_and_not_watched(tmp_path, model, name, way):
    array = np.load(model / f"{name}.npy")
    array[20, 3, 5], array[30, 16, 39], array[0, 0, 0] = np.nan, np.inf, -np.inf
    np.save(model / f"{name}.npy", array)
    posed = problem(model)
    found = run(tmp_path / "run", posed, **way)
    assert name in read(found)
    for level in ("u", "c"):  # of the other order of bytes: these are converted, so copied
        np.save(model / f"{level}.big.npy", np.load(model / f"{level}.npy").astype(">f4"))
    turned = problem(model, u="u.big.npy", c="c.big.npy")
    wanted = run(tmp_path / "copied", turned, **way)
    assert read(wanted) == ()
    for level in found:
        np.testing.assert_array_equal(found[level], wanted[level])
    assert sorted(found.record.warnings) == sorted(wanted.record.warnings)
    assert "3 values that are NaN or infinite" in found.record.warnings[0]


def test_a_value_that_becomes_infinite_is_found_in_the_first_sweep(tmp_path, model):
    array = np.load(model / "u.npy")
    array[15, 8, 20] = 3e38
    np.save(model / "u.npy", array)
    np.save(model / "c.npy", np.full(SHAPE, 3.0, np.float32))
    with pytest.raises(Exception, match=r"became (infinite|NaN) in step 1 of 11") as found:
        run(tmp_path / "run", problem(model))
    assert "NotFinite" not in type(found.value).__name__


@pytest.mark.parametrize("way", [{}, STRIPS], ids=["planes", "strips"])
def test_what_becomes_infinite_before_a_nan_has_come_does_not_end_the_run(tmp_path, model, way):
    array = np.load(model / "u.npy")
    array[3, 8, 20], array[30, 8, 20] = 3e38, np.nan
    np.save(model / "u.npy", array)
    np.save(model / "c.npy", np.full(SHAPE, 3.0, np.float32))
    found = run(tmp_path / "run", problem(model), **way)
    assert "u" in read(found)
    np.save(model / "u.big.npy", array.astype(">f4"))  # which is converted, so copied
    wanted = run(tmp_path / "copied", problem(model, u="u.big.npy"), **way)
    assert "u" not in read(wanted)
    for level in found:
        np.testing.assert_array_equal(found[level], wanted[level])
    assert sorted(found.record.warnings) == sorted(wanted.record.warnings)
    assert "1 values that are NaN or infinite" in found.record.warnings[0]


def test_an_unwatched_run_that_was_cut_off_is_not_watched_later(tmp_path, model, monkeypatch):
    array = np.load(model / "c.npy")
    array[2, 3, 5] = np.nan  # among the planes that the first commit is behind
    np.save(model / "c.npy", array)
    out, posed = tmp_path / "run", problem(model)
    last = cut_off(out, posed, monkeypatch, 3, commit_every=1e-9)
    assert last.steps_done == 0
    assert last.planes > 3
    assert not last.finite
    wanted = run(tmp_path / "whole", posed)
    for level, array in resume(out).items():
        np.testing.assert_array_equal(array, wanted[level])


def test_a_file_in_the_folders_of_the_run_stays_there(tmp_path, model):
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    for folder in (out, scratch):
        folder.mkdir()
    shutil.copy(model / "u.npy", out / "model.npy")
    shutil.copy(model / "c.npy", scratch / "speed.npy")
    before = {**digests(out), **digests(scratch)}
    posed = problem(model, u="../run/model.npy", c="../scratch/speed.npy")
    found = run(out, posed, scratch=scratch)
    assert read(found) == ("u", "u.previous", "c")
    assert before.items() <= {**digests(out), **digests(scratch)}.items()
    assert fields(found) == from_arrays(tmp_path / "arrays", problem(model))


def test_several_levels_come_from_one_file(tmp_path, model):
    posed = problem(model, u="c.npy", u_previous="c.npy")
    found = run(tmp_path / "run", posed)
    assert read(found) == ("u", "u.previous", "c")
    assert fields(found) == from_arrays(tmp_path / "arrays", posed)


def test_ranks_go_on_with_what_one_process_has_not_copied(tmp_path, model, monkeypatch):
    out = tmp_path / "run"
    cut_off(out, problem(model), monkeypatch, 1, commit_every=1e-9)
    kept = durable(out)
    levels = pipeline.plan(problem(model), RunOptions.of(**WAY)).schedule.kept
    given = kept.fields(levels)
    np.testing.assert_array_equal(given["c"][...], values(2))
    np.testing.assert_array_equal(given["u.previous"][...], values(0))


JOB = """
[problem]
stencil = "wave:4"
shape = [40, 64, 96]
dtype = "float32"
steps = 60
initial = {{u = "{model}/u.npy", c = "{model}/c.npy"}}
[run]
memory = "256MiB"
tier = "direct"
depth = 4
slab_planes = 2
threads = 1
commit_every = 0
out = "{out}"
"""


def test_kill_9_at_any_moment_costs_no_byte(tmp_path):
    model, chance = tmp_path / "model", random.Random(3)
    model.mkdir()
    shape = 40, 64, 96
    arrays = {"u": values(1, shape), "c": values(2, shape)}
    for name, array in arrays.items():
        np.save(model / f"{name}.npy", array)
    before = digests(model)
    whole = Problem("wave:4", shape, "float32", 60, initial=arrays)
    wanted = fields(run(tmp_path / "arrays", whole))
    for number in range(3):
        out, job = tmp_path / f"run{number}", tmp_path / "job.toml"
        job.write_text(JOB.format(model=model, out=out))
        act = [sys.executable, "-m", "outgrid"]
        process = subprocess.Popen([*act, "run", job], stdout=subprocess.DEVNULL)
        while process.poll() is None and not (out / MANIFEST_NAME).exists():
            time.sleep(0.01)
        while process.poll() is None and read_manifest(out).steps_done < 0:
            time.sleep(0.001)
        time.sleep(0.1 * number * chance.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not (out / "record.json").exists():
            assert main(["resume", str(out), "--quiet"]) == 0
        for name, nbytes in wanted.items():
            assert np.load(out / f"{name}.npy").tobytes() == nbytes
        assert json.loads((out / "record.json").read_text())["plan"]["uncopied"]
    assert digests(model) == before
