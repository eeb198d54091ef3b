"""The results of a run in one HDF5 file: what readers see in it, and what goes wrong."""

import json
import os
import random
import shutil

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import StoreError, UsageError
from outgrid.observe import snapshots
from outgrid.runs import single
from outgrid.runs.group import on_disk
from outgrid.runs.leftovers import leftovers
from outgrid.runs.resumption import resumption
from outgrid.runs.verify import verify
from outgrid.storage.export import export
from outgrid.testing.threads import in_threads

h5py = pytest.importorskip("h5py")

OTHERS = ("progress.jsonl", "record.json", "status.json")
GIVEN = {"memory": "2 GiB", "threads": 1}  # what reads the files stays in the process
SHAPE = (20, 24, 70)


def heat(shape=SHAPE, **others):
    given = {
        "steps": 4,
        "dtype": "float32",
        "initial": {"u": "sin(x/9)*cos(y/7) + z/70"},
        "grid": og.Grid(spacing=(2, 1, 0.5), origin=(1, 0, -3), units="m"),
    }
    return og.Problem("heat7", shape, parameters={"k": 0.1}, **given | others)


def wave():
    initial = {"u": "sin(x/9)*cos(y/7)", "c": 0.1}
    return og.Problem("wave:2", SHAPE, steps=4, dtype="float32", initial=initial)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Results in a folder."""
    folder = tmp_path_factory.mktemp("plain")
    return {
        make.__name__: og.run(make(), out=folder / make.__name__, **GIVEN) for make in (heat, wave)
    }


def by_h5py(path):
    with h5py.File(path) as file:
        fields = file["VTKHDF/PointData"] if path.suffix.lower() == ".vtkhdf" else file
        return {name: fields[name][...] for name in fields if fields[name].ndim == 3}


@pytest.mark.parametrize(
    ("problem", "name", "tier"),
    [
        (heat, "r.h5", "direct"),
        (heat, "r.VTKHDF", "memory"),
        (wave, "r.vtkhdf", "direct"),
        (wave, "r.nc", "mmap"),
    ],
)
def test_the_file_has_what_a_folder_has(plain, tmp_path, problem, name, tier):
    wanted, path = plain[problem.__name__], tmp_path / name
    found = og.run(problem(), out=path, tier=tier, **GIVEN)
    assert found.out == tmp_path / "r.run" == og.open(path).out
    assert set(found) == set(wanted)
    for seen in (by_h5py(path), found):
        assert {field: seen[field].tobytes() for field in seen} == {
            field: wanted[field].tobytes() for field in wanted
        }
    assert [*tmp_path.iterdir()] != [path]
    assert sorted(os.listdir(found.out)) == sorted(
        [name, *OTHERS, *(f"{field}.npy.xxh3" for field in wanted)]
    )
    assert not verify(found.out).errors
    assert not found.record.warnings
    again = og.export(found, tmp_path / "u.npy", fields=["u"])
    np.testing.assert_array_equal(np.load(again.path), wanted["u"])
    np.testing.assert_array_equal(found.to_xarray()["u"][3:5, 1], wanted["u"][3:5, 1])
    group = "VTKHDF/PointData/" if path.suffix.lower() == ".vtkhdf" else ""
    again = heat(initial={"u": f"{path}:{group}u"}, steps=0, grid=None)
    more = og.run(again, out=tmp_path / "m", **GIVEN)
    np.testing.assert_array_equal(more["u"], wanted["u"])


def test_planes_that_fill_no_block_are_copied(tmp_path):
    wanted = og.run(heat((5, 7, 9)), out=tmp_path / "plain", **GIVEN)
    found = og.run(heat((5, 7, 9)), out=tmp_path / "r.h5", **GIVEN)
    np.testing.assert_array_equal(by_h5py(tmp_path / "r.h5")["u"], wanted["u"])
    np.testing.assert_array_equal(found["u"], wanted["u"])
    assert not verify(found.out).errors


def test_xarray_and_vtk_see_coordinates(plain, tmp_path):
    xarray = pytest.importorskip("xarray")
    og.run(heat(), out=tmp_path / "r.nc", **GIVEN)
    with xarray.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as found:
        assert found["u"].dims == ("z", "y", "x")
        np.testing.assert_array_equal(found["z"], 1 + 2.0 * np.arange(20))
        assert found.attrs["Conventions"] == "CF-1.8"
        assert json.loads(found["u"].attrs["outgrid"])["problem"]["shape"] == [*SHAPE]
    reader = pytest.importorskip("vtkmodules.vtkIOHDF").vtkHDFReader()
    to_numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    og.run(heat(), out=tmp_path / "v.vtkhdf", **GIVEN)
    reader.SetFileName(str(tmp_path / "v.vtkhdf"))
    reader.Update()
    image = reader.GetOutput()
    assert image.GetSpacing() == (0.5, 1, 2)
    assert image.GetOrigin() == (-3, 0, 1)
    values = to_numpy(image.GetPointData().GetArray("u")).reshape(SHAPE)
    np.testing.assert_array_equal(values, plain["heat"]["u"])


def test_nothing_is_moved_where_there_is_one_field(tmp_path, monkeypatch):
    moved = []
    copy = single.copy_bytes
    monkeypatch.setattr(
        single, "copy_bytes", lambda *given: moved.append(given[-1]) or copy(*given)
    )
    problem = heat((64, 64, 64))
    found = og.run(problem, out=tmp_path / "r.h5", **GIVEN)
    assert sum(moved) < 64 << 10 < found["u"].nbytes


def kept(out, grid=None, **others):
    snapshots = [og.Snapshot("u", every=2), og.Snapshot("u", every=1, z=3, stride=2)]
    named = {} if grid is None else {"grid": grid}
    return og.run(heat(snapshots=snapshots, **named), out=out, **GIVEN, **others)


@pytest.mark.parametrize("name", ["r.h5", "r.nc"])
def test_snapshots_are_arrays_of_the_file(tmp_path, name):
    wanted, found = kept(tmp_path / "folder"), kept(tmp_path / name)
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(tmp_path / name, engine="h5netcdf") as opened:
        for number, frames in enumerate(wanted.snapshots):
            seen = opened[f"snapshot.{number}"]
            assert seen.dims[0].startswith("step")
            assert seen.values.tobytes() == frames.tobytes()
            assert found.snapshots[number].tobytes() == frames.tobytes()
    assert not [*found.out.glob("snapshot*.npy")]
    assert not verify(found.out).errors
    assert found.to_xarray()["snapshot.1"].equals(wanted.to_xarray()["snapshot.1"])
    again = og.export(found, tmp_path / "s.npy", fields=["snapshot.1"])
    np.testing.assert_array_equal(np.load(again.path), wanted.snapshots[1])

    again = kept(tmp_path / name, overwrite=True)
    assert again.snapshots[0].tobytes() == wanted.snapshots[0].tobytes()
    with h5py.File(found.path("u"), "r+") as file:
        file["snapshot.0"][1, 2, 3, 4] += 1
    assert "plane 2" in str(verify(found.out).errors[0])


@pytest.mark.parametrize("name", ["r.h5", "r.nc"])
def test_snapshots_are_found_where_a_record_names_their_file_for_fields_alone(tmp_path, name):
    wanted, found = kept(tmp_path / "folder"), kept(tmp_path / name)
    record = found.record.to_dict()
    assert record.pop("frames")
    (found.out / "record.json").write_text(json.dumps(record))
    again = og.open(found.out)
    for number, frames in enumerate(wanted.snapshots):
        assert again.snapshots[number].tobytes() == frames.tobytes()
    assert not verify(found.out).errors


SEVERAL = [og.Snapshot("u", every=3), og.Snapshot("u", first=2, every=2, z="::3", x=4)]
PIECES = {"memory": "2 GiB", "threads": 1, "slab_planes": 2, "tier": "direct"}


def several(**others):
    """Two levels of a field, and snapshots, in a run of several sweeps."""
    return og.Problem(
        "wave:2",
        SHAPE,
        steps=9,
        dtype="float32",
        initial={"u": "sin(x/9)*cos(y/7)", "c": 0.1},
        snapshots=SEVERAL,
        **others,
    )


@pytest.fixture(scope="module")
def apart_of_all(tmp_path_factory):
    return og.run(several(), out=tmp_path_factory.mktemp("several") / "r", depth=3, **PIECES)


def same(found, wanted):
    assert {name: found[name].tobytes() for name in found} == {
        name: wanted[name].tobytes() for name in wanted
    }
    for one, other in zip(found.snapshots, wanted.snapshots, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", ["r.h5", "r.nc", "r.vtkhdf"])
def test_no_array_is_copied_but_the_smallest(apart_of_all, tmp_path, monkeypatch, name):
    copied = []
    copy = single._copy_field
    monkeypatch.setattr(
        single, "_copy_field", lambda *given: copied.append(given[-1]) or copy(*given)
    )
    found = og.run(several(), out=tmp_path / name, depth=3, **PIECES)
    assert copied == [len(found.snapshots[1]) * 7 * 24 * 4]  # that shares a block with others
    same(found, apart_of_all)
    assert not verify(found.out).errors
    assert not [*found.out.glob("*.npy"), *found.out.glob("scratch")]


@pytest.fixture
def copied(monkeypatch):
    """Names of the files that arrays are copied from when a run is over."""
    names, copy = list[str](), single._copy_field
    monkeypatch.setattr(
        single, "_copy_field", lambda of, *given: names.append(of.stem) or copy(of, *given)
    )
    return names


@pytest.mark.parametrize("tier", ["memory", "swap"])
def test_fields_in_memory_are_copied_to_their_places(apart_of_all, tmp_path, copied, tier):
    found = og.run(several(), out=tmp_path / "r.h5", **PIECES | {"tier": tier})
    assert copied == ["snapshot.1"]  # that shares a block with others
    same(found, apart_of_all)
    assert not verify(found.out).errors
    assert not [*found.out.glob("*.npy"), *found.out.glob("scratch")]


@pytest.mark.parametrize("stop", [0, 27])
@pytest.mark.parametrize("cut", [False, True])
def test_spread_fields_are_copied_to_their_places(
    apart_of_all, tmp_path, copied, cut_off, monkeypatch, stop, cut
):
    path, places = tmp_path / "r.h5", [tmp_path / "a", tmp_path / "b"]
    given = PIECES | {"scratch": places, "stripe": "4 KiB"}

    def begin():
        og.run(several(), out=path, depth=3, commit_every=1e-6, **given)

    if stop:
        cut_off(stop, begin)
        assert not verify(tmp_path / "r.run").errors
    if cut:  # while it copies

        def copy(source, target, transfers):
            export(source, target, transfers)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("outgrid.execution.export", copy)
            with pytest.raises(KeyboardInterrupt):
                og.resume(path, depth=2, **PIECES) if stop else begin()
        assert not verify(tmp_path / "r.run").errors
    if stop or cut:
        found = og.resume(path, depth=1, **PIECES)
    else:
        begin()
        found = og.open(path)
    assert copied == ["snapshot.1"]
    same(found, apart_of_all)
    assert not verify(found.out).errors
    assert not [*found.out.glob("*.npy"), *found.out.glob("scratch"), *tmp_path.glob("[ab]/*")]


@pytest.mark.parametrize("cut", [False, True])
def test_snapshots_beside_another_state_are_copied_once(
    apart_of_all, tmp_path, copied, cut_off, monkeypatch, cut
):
    path = tmp_path / "r.h5"
    for advances in range(14, 30):  # which state is durable by then depends on the disk
        shutil.rmtree(tmp_path / "r.run", ignore_errors=True)
        cut_off(advances, lambda: og.run(several(), out=path, depth=3, commit_every=0, **PIECES))
        manifest = on_disk(tmp_path / "r.run").shares[0].manifest
        sweeps = -(-(several().steps - manifest.steps_done) // 2)
        if manifest.parity != sweeps % 2:
            break
    moved, copy = list[int](), snapshots.copy_array
    monkeypatch.setattr(
        snapshots, "copy_array", lambda *given: moved.append(given[1]) or copy(*given)
    )
    if cut:  # where results are in place, and snapshots beside them

        def fail(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(single, "_described", fail)
            with pytest.raises(KeyboardInterrupt):
                og.resume(path, **PIECES | {"depth": 2})
        found = og.resume(path, **PIECES | {"depth": 2})
    else:
        found = og.resume(path, **PIECES | {"depth": 2})
    assert moved == [found.record.offsets["snapshot.0"]] * (1 + cut)
    assert copied == ["snapshot.1"]
    same(found, apart_of_all)
    assert not verify(found.out).errors


@pytest.mark.parametrize("stop", [0, 9, 14])
def test_fields_with_regions_are_where_they_belong(tmp_path, copied, cut_off, stop):
    @og.stencil
    def pair(u, m, *, k):
        return [{"m": 0.5 * m + 0.1 * u[1, 0, 0]}, {"u": u + k * og.laplacian(u) - m[1, 0, 0]}]

    problem = og.Problem(
        pair,
        (40, 32, 48),
        "float32",
        6,
        {"k": 0.1},
        initial={"u": "sin(x)*cos(y+z)", "m": "x"},
        regions={"m": [og.Box(z=(3, 5)), og.Box(z=(30, 33))]},
        snapshots=[og.Snapshot("m", every=2)],
    )
    given = PIECES | {"depth": 2}
    wanted = og.run(problem, out=tmp_path / "folder", **given)
    path = tmp_path / "r.h5"
    if stop:
        cut_off(stop, lambda: og.run(problem, out=path, commit_every=1e-6, **given))
        found = og.resume(path, **given)
    else:
        found = og.run(problem, out=path, **given)
    assert not copied
    same(found, wanted)
    assert by_h5py(path)["m"].tobytes() == wanted["m"].tobytes()
    kept, whole = path.stat(), 40 * 32 * 48 * 4
    assert 512 * kept.st_blocks < kept.st_size - whole // 2
    assert not verify(found.out).errors


@pytest.mark.parametrize("stop", [1, 8, 27])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_run_goes_on_in_the_file_of_all_arrays(apart_of_all, tmp_path, cut_off, stop, depth):
    path = tmp_path / "r.h5"
    cut_off(stop, lambda: og.run(several(), out=path, depth=3, commit_every=1e-6, **PIECES))
    assert not (tmp_path / "r.run/scratch/u.previous.0.npy").exists()
    assert not verify(tmp_path / "r.run").errors
    tier = "mmap" if depth == 2 else "direct"
    found = og.resume(path, **PIECES | {"depth": depth, "tier": tier})
    same(found, apart_of_all)
    assert by_h5py(path)["u.previous"].tobytes() == apart_of_all["u.previous"].tobytes()
    assert not verify(found.out).errors
    assert not [*found.out.glob("*.npy"), *found.out.glob("scratch")]


@pytest.mark.parametrize("way", ["continued", "resumed"])
def test_a_run_goes_on_into_its_file_where_nothing_is_said_of_it(
    apart_of_all, tmp_path, cut_off, way
):
    path = tmp_path / "r.h5"
    cut_off(8, lambda: og.run(several(), out=path, depth=3, commit_every=1e-6, **PIECES))
    if way == "continued":
        found = og.run(several(), out=tmp_path / "r.run", resume=True, **PIECES)
    else:
        found = og.resume(path, file="auto")
    same(found, apart_of_all)
    assert path.samefile(found.path("u"))
    assert not verify(found.out).errors


@pytest.mark.parametrize(
    ("begun", "asked"), [("r.h5", "r.nc"), ("r.h5", ""), ("r.run", "mine.h5"), ("r.run", "r.h5")]
)
def test_a_run_goes_on_into_no_other_file(apart_of_all, tmp_path, cut_off, begun, asked):
    out, mine = tmp_path / "r.run", tmp_path / "r.run/mine.h5"
    cut_off(8, lambda: og.run(several(), out=tmp_path / begun, commit_every=1e-6, **PIECES))
    mine.write_text("mine")
    was, now = (
        f"the one file {name}" if name.endswith((".h5", ".nc")) else "a file for each field"
        for name in (begun, asked)
    )
    words = f"begun with its results in {was}, and does not go on with them in {now}"
    options = RunOptions.of(out=out, **PIECES | ({"file": asked} if asked else {}))
    with pytest.raises(UsageError, match=words):
        pipeline.resume(out, options)
    if asked == "mine.h5":
        with pytest.raises(UsageError, match=words):
            og.resume(out, file=asked)
    elif asked:
        with pytest.raises(UsageError, match=words):
            og.run(several(), out=tmp_path / asked, resume=True, **PIECES)
    assert mine.read_text() == "mine"
    same(og.resume(out), apart_of_all)
    assert mine.read_text() == "mine"


def gone_on_by_ranks(out):
    def go_on(comm):
        found = resumption(out, {}, comm)
        return pipeline.resume(out, found.options, changes=found.changes, comm=comm)

    return in_threads(go_on, 2, random.Random(3))[0]


def test_ranks_take_over_fields_that_lie_in_one_file(plain, tmp_path, cut_off):
    given = PIECES | {"out": tmp_path / "r.h5", "depth": 1, "commit_every": 1e-6}
    cut_off(11, lambda: og.run(wave(), **given))
    out = tmp_path / "r.run"
    assert not (out / "scratch/u.previous.0.npy").exists()
    found = gone_on_by_ranks(out)
    assert "file r.h5 left out: it is for runs of one rank" in found.plan.notes
    for name, values in plain["wave"].items():
        assert np.asarray(found[name]).tobytes() == values.tobytes()
    assert not [*out.rglob("u.0.npy"), *out.rglob("scratch")]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "snapshots lie in one file with the fields"),
        ({"scratch": True, "stripe": "4 KiB"}, "fields are spread over .*/a, .*/b"),
    ],
)
def test_what_ranks_cannot_take_over_is_refused(apart_of_all, tmp_path, cut_off, more, words):
    if more:
        more |= {"scratch": [tmp_path / "a", tmp_path / "b"]}
    given = PIECES | {"out": tmp_path / "r.h5", "commit_every": 1e-6} | more
    cut_off(8, lambda: og.run(several(), **given))
    with pytest.raises(UsageError, match=f"the {words}.*: resume it on one rank"):
        gone_on_by_ranks(tmp_path / "r.run")
    same(og.resume(tmp_path / "r.run"), apart_of_all)


def test_bits_that_were_flipped_in_the_file_of_all_arrays_are_found(tmp_path, cut_off):
    path = tmp_path / "r.h5"
    cut_off(27, lambda: og.run(several(), out=path, depth=3, commit_every=1e-6, **PIECES))
    for file in (tmp_path / "r.run/scratch").glob("u.?.npy"):
        values = np.memmap(file, np.uint8, "r+")
        values[4096 * 2 :: 4096] ^= 1
        values.flush()
    errors = verify(tmp_path / "r.run").errors
    assert len(errors) >= 3  # two levels, and snapshots
    with pytest.raises(StoreError, match="checksum"):
        og.resume(path, **PIECES)


def test_arrays_are_separated_where_a_run_is_given_up(apart_of_all, tmp_path, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(og.pipeline, "write_record", cut)
    with pytest.raises(KeyboardInterrupt):
        og.run(several(), out=tmp_path / "r.h5", depth=3, **PIECES)
    leftovers(tmp_path / "r.run", delete=True)
    arrays = dict(apart_of_all)
    arrays |= {f"snapshot.{n}": frames for n, frames in enumerate(apart_of_all.snapshots)}
    for name, values in arrays.items():
        found = np.load(tmp_path / "r.run" / f"{name}.npy", mmap_mode="r")
        assert found.tobytes() == values.tobytes()
    assert not (tmp_path / "r.h5").exists()


def test_a_field_that_shares_a_block_with_others_is_copied(tmp_path, monkeypatch):
    @og.stencil
    def three(u, v, w, *, k):
        return {name: f + k * og.laplacian(f) for name, f in (("u", u), ("v", v), ("w", w))}

    initial = {"u": "x + y", "v": "x * z", "w": "y - z"}
    given = {"parameters": {"k": 0.1}, "initial": initial, "dtypes": {"v": "float16"}}
    problem = og.Problem(three, (8, 13, 11), "float32", 4, **given)
    wanted = og.run(problem, out=tmp_path / "folder", **GIVEN)

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(og.pipeline, "write_record", cut)
    with pytest.raises(KeyboardInterrupt):
        og.run(problem, out=tmp_path / "r.h5", **GIVEN)
    monkeypatch.undo()
    found = og.resume(tmp_path / "r.h5")
    assert found.record.offsets["v"] % 4096
    for name, values in by_h5py(tmp_path / "r.h5").items():
        assert values.tobytes() == found[name].tobytes() == wanted[name].tobytes()
    assert not verify(found.out).errors


def fading():
    """A run that ends early, by what has changed."""

    @og.stencil
    def fades(u, v, *, k):
        change = k * og.laplacian(u)
        return {"u": u + change, "v": v + k * og.laplacian(v), "most": og.max(og.absolute(change))}

    return og.Problem(
        fades,
        SHAPE,
        steps=40,
        parameters={"k": 0.1},
        initial={"u": "sin(x/2)*cos(y/2)", "v": "cos(x/5)"},
        until=og.Until("most", 2, below=0.03),
        snapshots=[og.Snapshot("u", every=3), og.Snapshot("v", every=2)],
    )


@pytest.fixture(scope="module")
def faded(tmp_path_factory):
    result = og.run(fading(), out=tmp_path_factory.mktemp("fading") / "r", **GIVEN)
    assert 8 < result.record.steps < 40
    return result


def test_snapshots_of_a_run_that_may_end_early_are_copied_but_the_first(faded, tmp_path, copied):
    found = og.run(fading(), out=tmp_path / "r.h5", **GIVEN)
    same(found, faded)
    assert not verify(found.out).errors
    assert copied == ["snapshot.1"]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("stop", [0, 9])
def test_a_run_that_may_end_early_ends_in_either_parity(faded, tmp_path, cut_off, depth, stop):
    path, given = tmp_path / "r.h5", PIECES | {"depth": depth}
    if stop:
        cut_off(stop, lambda: og.run(fading(), out=path, commit_every=1e-6, **given))
        found = og.resume(path, **given)
    else:
        found = og.run(fading(), out=path, **given)
    same(found, faded)
    assert not verify(found.out).errors
    assert [file.name for file in found.out.glob("*.npy")] == ["reductions.npy"]
    assert not (found.out / "scratch").exists()


def test_space_is_asked_for_once_where_nothing_is_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("outgrid.runs.space.free_bytes", lambda _: 0)

    def needed(name):
        with pytest.raises(og.InfeasiblePlan) as refused:
            kept(tmp_path / name)
        return str(refused.value).partition("the run needs ")[2].partition(";")[0]

    assert needed("r.vtkhdf") == needed("folder") == needed("r.h5")


def test_snapshots_of_an_image_are_images_with_times(tmp_path, monkeypatch):
    reader = pytest.importorskip("vtkmodules.vtkIOHDF").vtkHDFReader
    to_numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    copied = []
    monkeypatch.setattr(single, "_copy_field", lambda *given: copied.append(given))
    grid, path = og.Grid(dt=0.25, spacing=(2, 1, 0.5)), tmp_path / "r.vtkhdf"
    wanted, found = kept(tmp_path / "folder", grid=grid), kept(path, grid=grid)
    assert not copied
    assert not [*found.out.glob("snapshot*.npy")]
    for number, every in enumerate((2, 1)):
        file = tmp_path / f"r.snapshot.{number}.vtkhdf"
        frames = wanted.snapshots[number]
        assert found.snapshots[number].tobytes() == frames.tobytes()
        images = reader()
        images.SetFileName(str(file))
        images.UpdateInformation()
        assert images.GetNumberOfSteps() == len(frames)
        for step, frame in enumerate(frames):
            images.SetStep(step)
            images.Update()
            seen = to_numpy(images.GetOutput().GetPointData().GetArray(f"snapshot.{number}"))
            assert seen.tobytes() == frame.tobytes()
            assert images.GetTimeValue() == 0.25 * every * (step + 1)
    assert not verify(found.out).errors
    assert found.to_xarray()["snapshot.1"].equals(wanted.to_xarray()["snapshot.1"])

    again = kept(path, overwrite=True, grid=grid)
    assert (tmp_path / "r.snapshot.1.vtkhdf").samefile(again.out / "r.snapshot.1.vtkhdf")
    with h5py.File(tmp_path / "r.snapshot.0.vtkhdf", "r+") as file:
        file["VTKHDF/PointData/snapshot.0"][1, 2, 3, 4] += 1
    assert "plane 2" in str(verify(found.out).errors[0])
    (tmp_path / "o.snapshot.1.vtkhdf").write_text("mine")
    with pytest.raises(UsageError, match=r"o\.snapshot\.1\.vtkhdf exists"):
        kept(tmp_path / "o.vtkhdf")


STAGES = ["_become", "_leave", "_linked", "write_record", "remove_copied"]
COPIED = ["_described", "_become", "_copy_field", "remove_copied"]


def apart(monkeypatch):
    """Every array of a run has a file of its own, and is copied in the end."""
    monkeypatch.setattr("outgrid.sharing.alone.lie_together", lambda *_: None)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("stage", dict.fromkeys(STAGES + COPIED))
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_cut_off_at_its_file_is_resumed(
    plain, tmp_path, monkeypatch, stage, after, copied
):
    if stage not in (COPIED if copied else STAGES):
        pytest.skip("it is not come by")
    if copied:
        apart(monkeypatch)
    module = single if stage.startswith("_") else og.pipeline
    real = getattr(module, stage)

    def cut(*given):
        if after:
            real(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, stage, cut)
    path = tmp_path / "r.h5"
    with pytest.raises(KeyboardInterrupt):
        og.run(wave(), out=path, **GIVEN)
    monkeypatch.undo()
    shutil.copytree(tmp_path, tmp_path.with_suffix(".twin"))
    assert not verify(tmp_path / "r.run").errors
    found = og.resume(path)
    for name, values in by_h5py(path).items():
        assert values.tobytes() == plain["wave"][name].tobytes()
    assert not verify(found.out).errors
    assert sorted(os.listdir(found.out)) == [
        "progress.jsonl", "r.h5", "record.json", "status.json", "u.npy.xxh3", "u.previous.npy.xxh3"
    ]  # fmt: skip
    assert path.samefile(found.path("u"))

    twin = tmp_path.with_suffix(".twin") / "r.run"
    if not (twin / "record.json").exists():  # what is not wanted any more is removed, or is whole
        leftovers(twin, delete=True)
        assert not (twin / "r.h5").exists()
        for name, values in plain["wave"].items():
            np.testing.assert_array_equal(np.load(twin / f"{name}.npy"), values)


@pytest.mark.parametrize("name", ["r.h5", "r.vtkhdf"])
@pytest.mark.parametrize("stage", ["_become", "_leave", "_linked", "write_record", "remove_copied"])
def test_snapshots_are_there_however_a_run_is_cut_off(tmp_path, monkeypatch, stage, name):
    wanted = kept(tmp_path / "folder")
    module = single if stage.startswith("_") else og.pipeline
    real = getattr(module, stage)

    def cut(*given):
        real(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, stage, cut)
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path / name)
    monkeypatch.undo()
    assert not verify(tmp_path / "r.run").errors
    found = og.resume(tmp_path / name)
    for one, other in zip(found.snapshots, wanted.snapshots, strict=True):
        assert one.tobytes() == other.tobytes()
    assert not [*found.out.glob("*.npy")]
    assert not verify(found.out).errors


def test_a_block_that_was_torn_is_written_again(plain, tmp_path, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(single, "_linked", cut)
    with pytest.raises(KeyboardInterrupt):
        og.run(heat(), out=tmp_path / "r.h5", **GIVEN)
    monkeypatch.undo()
    with (tmp_path / "r.run/r.h5").open("r+b") as file:
        file.write(b"\0" * 700)
    og.resume(tmp_path / "r.run")
    np.testing.assert_array_equal(by_h5py(tmp_path / "r.h5")["u"], plain["heat"]["u"])


def test_a_full_disk_ends_a_run_that_can_go_on(plain, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(single, "_copy_field", full)
    apart(monkeypatch)
    with pytest.raises(StoreError, match="No space left"):
        og.run(wave(), out=tmp_path / "r.h5", **GIVEN)
    monkeypatch.undo()
    og.resume(tmp_path / "r.run")
    np.testing.assert_array_equal(by_h5py(tmp_path / "r.h5")["u"], plain["wave"]["u"])


def test_files_of_others_stay(tmp_path):
    path = tmp_path / "r.h5"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"r\.h5 exists and is not overwritten"):
        og.run(heat(), out=path, **GIVEN)
    with pytest.raises(UsageError, match=r"r\.h5 exists and is not overwritten"):
        og.run(heat(), out=path, overwrite=True, **GIVEN)
    assert path.read_text() == "mine"
    assert any("r.h5 exists" in note for note in og.plan(heat(), memory="256 MiB", out=path).notes)
    path.unlink()
    first = og.run(heat(), out=path, **GIVEN)
    og.run(heat(steps=2), out=path, overwrite=True, **GIVEN)
    assert path.samefile(first.path("u"))
    path.unlink()
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"r\.h5 exists and is not overwritten"):
        og.run(heat(), out=path, overwrite=True, **GIVEN)
    og.run(heat(steps=2), out=tmp_path / "r.run", overwrite=True, **GIVEN)
    assert path.read_text() == "mine"
    assert (tmp_path / "r.run/u.npy").exists()


def test_a_file_that_was_changed_is_told(tmp_path):
    found = og.run(heat(), out=tmp_path / "r.h5", **GIVEN)
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        file["u"][3, 4, 5] = 7
    (error,) = verify(found.out).errors
    assert "r.h5" in str(error)
    (tmp_path / "r.h5").write_bytes(b"short")
    with pytest.raises(StoreError, match="the file has 5 bytes"):
        found["u"]


def test_what_no_file_can_hold_is_refused_before_a_run(tmp_path, monkeypatch):
    grid = og.Grid(fields={"u": {"offset": (0, 0, 0.5)}, "v": {"offset": (0, 0, 0)}})

    @og.stencil
    def both(u, v):
        return {"u": u + v[0, 0, 1], "v": v + u[0, 0, -1]}

    apart = og.Problem(both, SHAPE, steps=1, initial={"u": 1.0, "v": 0.0}, grid=grid)
    with pytest.raises(UsageError, match="half a cell apart"):
        og.run(apart, out=tmp_path / "r.vtkhdf", **GIVEN)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'outgrid\[hdf5\]'"):
        og.run(heat(), out=tmp_path / "r.h5", **GIVEN)
    assert not [*tmp_path.iterdir()]


def test_a_file_system_without_second_names_keeps_it_in_the_folder(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(1, os.strerror(1))

    monkeypatch.setattr(single.os, "link", refused)
    found = og.run(heat(), out=tmp_path / "r.h5", **GIVEN)
    assert any("the results are in" in warning for warning in found.record.warnings)
    assert by_h5py(found.path("u"))["u"].shape == SHAPE


def test_it_is_drawn_and_reported(tmp_path):
    pytest.importorskip("matplotlib")
    from outgrid.cli import main

    found = og.run(heat(), out=tmp_path / "r.h5", **GIVEN)
    assert main(["report", str(found.out)]) == 0
    assert (found.out / "report/u.png").stat().st_size > 5000
    figure = found.plot()
    axes = figure.axes[0]
    assert (axes.get_title(), axes.get_xlabel()) == ("u, z = 21 m", "x (m)")
    assert tuple(axes.images[0].get_extent()) == (-3.25, 31.75, 23.5, -0.5)
    np.testing.assert_array_equal(axes.images[0].get_array(), found["u"][10])
    np.testing.assert_array_equal(
        found.plot("u", index=3).axes[0].images[0].get_array(), found["u"][3]
    )
    with pytest.raises(UsageError, match="has no field 'w'"):
        found.plot("w")


@pytest.mark.parametrize("file", ["x.h5", "x.nc", "x.vtkhdf"])
def test_bits_that_others_do_not_read_are_not_left_in_one_file(file, tmp_path):
    problem = og.Problem(
        "heat7", (8, 8, 8), "float32", 2, initial={"u": 1.0}, dtypes={"u": "bfloat16"}
    )
    with pytest.raises(UsageError, match=f"u is stored in bfloat16, and {file} would hold bits"):
        og.run(problem, memory="1GiB", out=tmp_path / file)
    assert not (tmp_path / file).exists()
    made = og.run(problem, memory="1GiB", out=tmp_path / "run")
    assert made["u"].dtype.name == "bfloat16"
