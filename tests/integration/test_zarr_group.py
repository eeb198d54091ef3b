"""The folder of a run as a group of Zarr: what zarr-python and xarray find, and what goes wrong."""

import errno
import json
import os
import shutil
import warnings

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import UsageError
from outgrid.exports import convert, export
from outgrid.formats import InputFile
from outgrid.runs import zarr as making
from outgrid.runs.verify import verify

zarr = pytest.importorskip("zarr")

SHAPE = (20, 24, 70)
GIVEN = {"memory": "256 MiB", "tier": "direct", "depth": 2, "threads": 1}


def heat(**others):
    given = {
        "shape": SHAPE,
        "steps": 4,
        "dtype": "float32",
        "initial": {"u": "sin(x/9)*cos(y/7) + z/70"},
        "snapshots": [og.Snapshot("u", every=2), og.Snapshot("u", every=2, x=3, stride=2)],
        "grid": og.Grid(spacing=(2, 1, 0.5), units="m", fields={"u": {"units": "K"}}),
    } | others
    return og.Problem("heat7", parameters={"k": 0.1}, **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return og.run(heat(), out=tmp_path_factory.mktemp("run") / "heat.zarr", **GIVEN)


def test_zarr_finds_the_bytes_of_the_npy_files(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open(run.out, mode="r")
        assert {"u", "snapshot.0", "snapshot.1", "z", "y", "x"} <= {*group}
        np.testing.assert_array_equal(group["u"][...], run["u"])
        np.testing.assert_array_equal(group["u"][3:5, 2:9, 1], run["u"][3:5, 2:9, 1])
        np.testing.assert_array_equal(group["snapshot.0"][...], run.snapshots[0])
        np.testing.assert_array_equal(group["snapshot.1"][1], run.snapshots[1][1])
    assert os.path.samefile(run.out / "u.npy", run.out / "u/c/0/0/0")
    assert json.loads(group.attrs["outgrid"]) == json.loads(json.dumps(run.record.to_dict()))
    mapped = np.load(run.path("u"), mmap_mode="r")
    np.testing.assert_array_equal(mapped, run["u"])
    alone = zarr.open(run.out / "u", mode="r")  # without the metadata of the group
    assert alone.metadata.dimension_names == ("z", "y", "x")
    assert alone.attrs["units"] == "K"
    np.testing.assert_array_equal(alone[7], run["u"][7])


def test_xarray_finds_axes_and_coordinates(run):
    xarray = pytest.importorskip("xarray")
    with xarray.open_zarr(run.out, chunks=None) as found:
        assert found["u"].dims == ("z", "y", "x")
        np.testing.assert_array_equal(found["z"], 2.0 * np.arange(20))
        assert found["x"].attrs == {"units": "m"}
        assert found["snapshot.0"].dims == ("step", "z", "y", "x")
        np.testing.assert_array_equal(found["step"], [2, 4])
        other = run.to_xarray()
        for name in other:
            xarray.testing.assert_equal(found[name], other[name])


@pytest.mark.parametrize("shape", [(9, 10), (6, 9, 10)])
def test_a_field_may_have_the_name_of_an_axis(tmp_path, shape):
    @og.stencil
    def decay(x, time):
        return {"x": x - 0.1 * time, "time": 0.5 * time}

    problem = og.Problem(
        decay,
        shape,
        steps=2,
        initial={"x": "1.0*x", "time": 2.0},
        snapshots=[og.Snapshot("x", every=1)],
        grid=og.Grid(dt=0.5),
    )
    levels = len(shape) == 3
    found = og.run(problem, out=tmp_path / "run", pyramid=levels, **GIVEN)
    axes = (*"zy"[3 - len(shape) :], "x_axis")
    og.export(found, tmp_path / "u.zarr", levels=levels)
    for path in (found.out, tmp_path / "u.zarr"):
        group = zarr.open(path, mode="r")
        for name in ("x", "time"):
            made = group[name if path == found.out or not levels else f"{name}/0"]
            assert made.metadata.dimension_names == axes
            np.testing.assert_array_equal(made[...], found[name])
        if levels:
            pyramid = group["x.pyramid" if path == found.out else "x"].attrs["ome"]
            assert [axis["name"] for axis in pyramid["multiscales"][0]["axes"]] == [*axes]
    assert zarr.open(found.out, mode="r")["snapshot.0"].metadata.dimension_names[0] == "time_axis"
    pytest.importorskip("xarray")
    told = found.to_xarray()
    assert told["x"].dims == axes
    np.testing.assert_array_equal(told["x_axis"], np.arange(shape[-1]))
    h5py = pytest.importorskip("h5py")
    og.export(found, tmp_path / "u.nc")
    og.run(problem, out=tmp_path / "one.h5", **GIVEN)
    for path in (tmp_path / "u.nc", tmp_path / "one.h5"):
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["x"], found["x"])
            np.testing.assert_array_equal(file["x_axis"], np.arange(shape[-1]))


@pytest.mark.parametrize("shape", [(300, 1000), (7, 700, 800), (3, 5, 7)])
def test_chunks_of_all_sizes_hold_their_planes(tmp_path, shape):
    stencil = "heat7" if len(shape) == 3 else "heat5"
    problem = og.Problem(stencil, shape, steps=1, parameters={"k": 0.1}, initial={"u": "x + y*y"})
    found = og.run(problem, out=tmp_path / "run", **GIVEN)
    array = zarr.open(tmp_path / "run", mode="r")["u"]
    np.testing.assert_array_equal(array[...], found["u"])
    np.testing.assert_array_equal(array[2:3, 1:4], found["u"][2:3, 1:4])
    assert array.chunks[-1] == shape[-1]
    assert np.prod(array.chunks) * 8 <= max(1 << 20, np.prod(shape[1:]) * 8)


def test_a_copy_or_a_move_of_the_folder_opens(run, tmp_path):
    shutil.copytree(run.out, tmp_path / "copied")
    (tmp_path / "copied").rename(tmp_path / "moved")
    np.testing.assert_array_equal(zarr.open(tmp_path / "moved", mode="r")["u"][...], run["u"])
    np.testing.assert_array_equal(og.open(tmp_path / "moved")["u"], run["u"])
    assert not verify(tmp_path / "moved").errors


def test_a_result_with_its_index_is_an_input_and_is_exported(run, tmp_path):
    again = og.run(heat(initial={"u": run.path("u")}, steps=0), out=tmp_path / "again", **GIVEN)
    np.testing.assert_array_equal(again["u"], run["u"])
    export(run, tmp_path / "u.raw")
    assert (tmp_path / "u.raw").read_bytes() == np.asarray(run["u"]).tobytes()


def test_bits_of_bfloat16_are_read_as_its_numbers(tmp_path):
    pytest.importorskip("ml_dtypes")
    kept = [og.Snapshot("u", every=2, dtype="bfloat16")]
    given = {"dtypes": {"u": "bfloat16"}, "snapshots": kept}
    left = og.run(heat(**given), out=tmp_path / "heat.zarr", **GIVEN)
    for name, wanted in (("u", left["u"]), ("snapshot.0", left.snapshots[0])):
        convert(InputFile(f"{left.out}/{name}"), tmp_path / f"{name}.npy")
        found = np.load(tmp_path / f"{name}.npy").view("bfloat16")
        assert found.tobytes() == np.asarray(wanted).tobytes()
    convert(InputFile(f"{left.out}/u"), tmp_path / "u.nii")
    again = heat(initial={"u": f"{left.out}/u"}, steps=0, snapshots=())
    found = og.run(again, out=tmp_path / "again", **GIVEN)["u"]
    np.testing.assert_array_equal(found, np.asarray(left["u"]).astype("float32"))


def test_what_lies_behind_the_data_is_an_index_or_an_error(run, tmp_path):
    shutil.copytree(run.out, tmp_path / "run")
    path = tmp_path / "run" / "u.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (error,) = verify(tmp_path / "run").errors
    assert "the index of its chunks differs from the written one" in str(error)
    for spoilt in (whole[:-1], whole + b"\0", whole[:-20] + b"\xff" * 8 + whole[-12:]):
        path.write_bytes(spoilt)
        (error,) = verify(tmp_path / "run").errors
        assert "the header gives" in str(error)


def test_nothing_of_others_is_overwritten(tmp_path):
    (tmp_path / "run/u").mkdir(parents=True)
    (tmp_path / "run/u/zarr.json").write_text("precious")
    with pytest.raises(UsageError, match=r"u/zarr\.json exists and is not overwritten"):
        og.run(heat(), out=tmp_path / "run", **GIVEN)
    shutil.rmtree(tmp_path / "run/u")
    (tmp_path / "run/z").write_text("precious")
    with pytest.raises(UsageError, match="z must be a folder; choose another folder"):
        og.run(heat(), out=tmp_path / "run", **GIVEN)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["z"]


def test_overwriting_leaves_no_array_of_the_former_run(run, tmp_path):
    shutil.copytree(run.out, tmp_path / "run")
    found = og.run(heat(snapshots=[]), out=tmp_path / "run", overwrite=True, **GIVEN)
    assert not list((tmp_path / "run").glob("*snapshot*"))
    np.testing.assert_array_equal(zarr.open(tmp_path / "run", mode="r")["u"][...], found["u"])


def test_a_file_system_without_second_names_is_told(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(making.os, "link", refused)
    found = og.run(heat(), out=tmp_path / "run", **GIVEN)
    assert any("is not a Zarr group" in warning for warning in found.record.warnings)
    assert not (tmp_path / "run/zarr.json").exists()
    monkeypatch.undo()
    og.run(heat(), out=tmp_path / "run", overwrite=True, **GIVEN)
    assert zarr.open(tmp_path / "run", mode="r")["u"].shape == SHAPE


@pytest.mark.parametrize("number", range(4))
def test_a_run_that_is_cut_off_at_its_index_is_resumed(run, tmp_path, monkeypatch, number):
    """Between the planes, their index, the second name and the record."""
    done = []

    def cut(name):
        real = getattr(making, name)

        def before(*given):
            done.append(name)
            if len(done) > number:
                raise KeyboardInterrupt
            return real(*given)

        return before

    for name in ("index_of", "_put"):
        monkeypatch.setattr(making, name, cut(name))
    with pytest.raises(KeyboardInterrupt):
        og.run(heat(), out=tmp_path / "run", **GIVEN)
    monkeypatch.undo()
    with (tmp_path / "run/u.npy").open("ab") as file:
        file.write(b"torn")
    found = og.resume(tmp_path / "run")
    np.testing.assert_array_equal(zarr.open(tmp_path / "run", mode="r")["u"][...], run["u"])
    assert found.path("u").read_bytes() == run.path("u").read_bytes()
