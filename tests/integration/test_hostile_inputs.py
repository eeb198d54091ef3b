"""Files that are damaged, unfinished or not what was meant: told before anything is computed."""

import gzip
import pkgutil
import resource
import shutil
from contextlib import closing

import numpy as np
import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import Error, StoreError, UsageError
from outgrid.formats import InputFile, open_file, open_input
from outgrid.formats.axis import Axis
from outgrid.formats.hdf5 import Hdf5Output
from outgrid.formats.sink import Array

SHAPE = (12, 20, 24)
VALUES = np.random.default_rng(9).standard_normal(SHAPE).astype("f4")


def run(source, folder, **given):
    problem = og.Problem(
        "heat7", SHAPE, steps=2, parameters={"k": 0.1}, dtype="float32", initial={"u": source}
    )
    return og.run(problem, memory="300 MiB", out=folder / "r", **given)


def h5(folder, name="m.h5", **how):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / name, "w") as file:
        file.create_dataset("vp", data=VALUES, **how)
        file["rho"] = VALUES
    return folder / name


def store(folder, **how):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "m.zarr", mode="w")
    made = group.create_array("vp", shape=SHAPE, dtype="f4", chunks=(4, 20, 24), **how)
    made[...] = VALUES
    group.create_array("rho", shape=(3,), dtype="f8")[...] = 1
    return folder / "m.zarr"


def spoil(path, first, count=64):
    """Turn bits of some bytes."""
    content = bytearray(path.read_bytes())
    first = first if first >= 0 else len(content) + first
    content[first : first + count] = bytes(255 - byte for byte in content[first : first + count])
    path.write_bytes(content)


def cut(path, share=0.6):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def h5_without_the_name(folder):
    return f"{h5(folder)}:temperature", ["'temperature'", "vp", "rho"]


def h5_of_several(folder):
    return h5(folder), ["several arrays", "vp", "rho", "m.h5:"]


def h5_with_a_spoilt_chunk(folder):
    path = h5(folder, chunks=(4, 20, 24), compression="gzip")
    spoil(path, path.stat().st_size // 3)
    return f"{path}:vp", ["m.h5"]


def h5_with_chunks_to_come(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.h5", "w") as file:
        made = file.create_dataset("vp", SHAPE, "f4", chunks=(4, 20, 24))
        made[:4] = VALUES[:4]
    return folder / "m.h5", ["1 of its 3 chunks", "missing="]


def h5_never_written(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.h5", "w") as file:
        file.create_dataset("vp", SHAPE, "f4")
    return folder / "m.h5", ["0 of its 1 chunks", "missing="]


def netcdf_without_the_name(folder):
    return f"{h5(folder, 'm.nc')}:temperature", ["'temperature'", "vp", "rho"]


def classic_without_the_name(folder):
    io = pytest.importorskip("scipy.io")
    with io.netcdf_file(folder / "m.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("salt", "f4", ("x",))[:] = 1
    return f"{folder}/m.nc:temperature", ["'temperature'", "salt"]


def netcdf_with_missing_values(folder):
    h5py = pytest.importorskip("h5py")
    holed = VALUES.copy()
    holed[3, 4, 5] = np.nan
    with h5py.File(folder / "m.nc", "w") as file:
        file["vp"] = holed
        file["vp"].attrs["_FillValue"] = np.float32(np.nan)
    return folder / "m.nc", ["(3, 4, 5)", "nan", "missing=0.0"]


def netcdf_over_time(folder):
    xarray = pytest.importorskip("xarray")
    found = xarray.DataArray(VALUES[None], dims=("time", "z", "y", "x"), name="vp")
    found.to_dataset().to_netcdf(folder / "m.nc", engine="h5netcdf")
    return f"{folder}/m.nc:vp", ["(1, 12, 20, 24) of time, z, y, x", "index=(0,)"]


def zarr_without_the_name(folder):
    return f"{store(folder)}/temperature", ["'temperature'", "vp", "rho"]


def zarr_that_is_being_written(folder):
    path = store(folder)
    (path / "vp/c/1/0/0").unlink()
    return f"{path}/vp", ["2 of its 3 chunks", "being written", "missing="]


def shards(folder, values=VALUES):
    zarr = pytest.importorskip("zarr")
    path = folder / "m.zarr"
    made = zarr.create_array(
        path, shape=SHAPE, dtype="f4", chunks=(2, 8, 8), shards=(8, 16, 16), fill_value=0
    )
    made[...] = values
    return path


def zarr_without_a_shard(folder):
    path = shards(folder)
    (path / "c/1/1/1").unlink()
    return path, ["52 of its 54 chunks", "missing="]


def zarr_without_a_chunk_of_a_shard(folder):
    holed = VALUES.copy()
    holed[:2, :8, :8] = 0  # zarr-python stores no chunk of the fill value
    return shards(folder, holed), ["53 of its 54 chunks", "missing="]


def zarr_with_a_cut_shard(folder):
    path = shards(folder)
    (path / "c/1/1/1").write_bytes(b"no index")
    return path, ["m.zarr", "index"]


def zarr_with_a_marker_of_xarray(folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    holed = VALUES.copy()
    holed[3, 4, 5] = np.nan
    told = {"vp": {"_FillValue": np.float32(1e20)}}
    found = xarray.Dataset({"vp": (("z", "y", "x"), holed)})
    found.to_zarr(folder / "m.zarr", zarr_format=3, consolidated=False, encoding=told)
    return f"{folder}/m.zarr/vp", ["(3, 4, 5)", "1.00000002", "missing=0.0"]


def zarr2_with_a_marker_of_xarray(folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    holed = VALUES.copy()
    holed[3, 4, 5] = np.nan
    told = {"vp": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -32768}}
    found = xarray.Dataset({"vp": (("z", "y", "x"), holed)})
    found.to_zarr(folder / "m.zarr", zarr_format=2, encoding=told)
    return f"{folder}/m.zarr/vp", ["(3, 4, 5)", "-32768", "missing=0.0"]


def zarr2_with_a_fill_value_of_0(folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(
        folder / "m.zarr", shape=SHAPE, dtype="f4", fill_value=0, zarr_format=2
    )
    made[...] = VALUES
    made[3, 4, 5] = 0
    made.attrs["_ARRAY_DIMENSIONS"] = ["z", "y", "x"]
    return folder / "m.zarr", ["(3, 4, 5)", "0.0", "missing=0.0"]


def zarr_with_a_cut_chunk(folder):
    path = store(folder)
    cut(path / "vp/c/1/0/0")
    return f"{path}/vp", ["m.zarr"]


def zarr_with_a_chunk_of_another_size(folder):
    path = store(folder, compressors=None)
    cut(path / "vp/c/2/0/0", 0.5)
    return f"{path}/vp", ["m.zarr"]


def zarr_with_cut_metadata(folder):
    path = store(folder)
    cut(path / "vp/zarr.json")
    return f"{path}/vp", ["m.zarr"]


def tiff_with_a_spoilt_strip(folder):
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(folder / "u.tif", VALUES, compression="zlib")
    spoil(folder / "u.tif", (folder / "u.tif").stat().st_size // 2)
    return folder / "u.tif", ["u.tif"]


def gzip_that_ends_early(folder):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(VALUES.T, np.eye(4)), folder / "u.nii.gz")
    cut(folder / "u.nii.gz", 0.9)
    return folder / "u.nii.gz", ["u.nii.gz"]


def gzip_of_too_little(folder):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(VALUES.T, np.eye(4)), folder / "u.nii")
    content = (folder / "u.nii").read_bytes()
    (folder / "u.nii.gz").write_bytes(gzip.compress(content[:-5000]))
    return folder / "u.nii.gz", ["u.nii.gz", "ends before its data"]


def gzip_with_spoilt_bytes(folder):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(VALUES.T, np.eye(4)), folder / "u.nii.gz")
    spoil(folder / "u.nii.gz", -6, 2)  # of the sum over all of it
    return folder / "u.nii.gz", ["u.nii.gz", "CRC"]


def segy_cut(folder):
    segyio = pytest.importorskip("segyio")
    segyio.tools.from_array3D(str(folder / "u.sgy"), VALUES)
    cut(folder / "u.sgy", 0.7)
    return folder / "u.sgy", ["u.sgy"]


def npy_of_another_length(folder):
    np.save(folder / "u.npy", VALUES)
    with open(folder / "u.npy", "ab") as file:
        file.write(b"more")
    return folder / "u.npy", ["u.npy", "but the file has"]


def raw_of_another_length(folder):
    (folder / "u.raw").write_bytes(VALUES.tobytes()[:-4])
    return InputFile(folder / "u.raw", shape=SHAPE, dtype="f4"), ["u.raw", "23036"]


MAKERS = [
    h5_without_the_name,
    h5_of_several,
    h5_with_a_spoilt_chunk,
    h5_with_chunks_to_come,
    h5_never_written,
    netcdf_without_the_name,
    classic_without_the_name,
    netcdf_with_missing_values,
    netcdf_over_time,
    zarr_without_the_name,
    zarr_that_is_being_written,
    zarr_without_a_shard,
    zarr_without_a_chunk_of_a_shard,
    zarr_with_a_cut_shard,
    zarr_with_a_marker_of_xarray,
    zarr2_with_a_marker_of_xarray,
    zarr2_with_a_fill_value_of_0,
    zarr_with_a_cut_chunk,
    zarr_with_a_chunk_of_another_size,
    zarr_with_cut_metadata,
    tiff_with_a_spoilt_strip,
    gzip_that_ends_early,
    gzip_of_too_little,
    gzip_with_spoilt_bytes,
    segy_cut,
    npy_of_another_length,
    raw_of_another_length,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_is_wrong_is_told_and_nothing_is_computed(make, tmp_path, monkeypatch):
    source, words = make(tmp_path)
    monkeypatch.setattr("outgrid.execution.stream", lambda *_, **__: pytest.fail("it computes"))
    with pytest.raises(Error) as caught:
        run(source, tmp_path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not (tmp_path / "r" / "u.npy").exists()


@pytest.mark.parametrize("make", [zarr_that_is_being_written, h5_with_chunks_to_come])
def test_chunks_that_are_not_there_may_stand_for_a_number(make, tmp_path):
    source, _ = make(tmp_path)
    problem = og.Problem(
        "heat7", SHAPE, steps=0, parameters={"k": 0.1}, dtype="float32",
        initial={"u": InputFile(str(source), missing=-1.0)},
    )  # fmt: skip
    found = og.run(problem, memory="300 MiB", out=tmp_path / "r")["u"]
    np.testing.assert_array_equal(found[:4], VALUES[:4])
    assert (found[4:8] == -1).all()


def test_zarr2_is_read_with_a_number_for_missing_values_and_without_a_fill_value(tmp_path):
    xarray = pytest.importorskip("xarray")
    found = xarray.Dataset({"vp": (("z", "y", "x"), np.arange(24).reshape(2, 3, 4))})
    found.to_zarr(tmp_path / "m.zarr", zarr_format=2)
    with closing(open_file(InputFile(f"{tmp_path}/m.zarr/vp"))) as source:
        np.testing.assert_array_equal(source.read(tuple(map(range, (2, 3, 4)))), found["vp"])
    path, _ = zarr2_with_a_marker_of_xarray(tmp_path / "other")
    assert main(["import", path, "--to", f"{tmp_path}/u.npy", "--missing", "7"]) == 0
    assert np.load(tmp_path / "u.npy")[3, 4, 5] == 7


def test_shards_with_all_their_chunks_are_read(tmp_path):
    with closing(open_file(InputFile(str(shards(tmp_path))))) as source:
        np.testing.assert_array_equal(source.read(tuple(map(range, SHAPE))), VALUES)


def test_zeros_that_we_write_are_there(tmp_path):
    zarr = pytest.importorskip("zarr")
    np.save(tmp_path / "u.npy", np.zeros(SHAPE, "f4"))
    og.convert(InputFile(str(tmp_path / "u.npy")), tmp_path / "u.zarr", chunks=5, codec="zstd")
    array = zarr.open(tmp_path / "u.zarr", mode="r")["u"]
    assert array.nchunks_initialized == array.nchunks
    og.convert(InputFile(str(tmp_path / "u.zarr")), tmp_path / "again.npy")


def by_npy(folder):
    turned = VALUES.astype(">f4")  # which is converted, so it is copied
    np.save(folder / "u.npy", turned)
    return folder / "u.npy", lambda: np.save(folder / "u.npy", turned * 2)


def by_h5(folder):
    path = h5(folder, chunks=(4, 20, 24))
    other = folder / "other"
    other.mkdir()
    return f"{path}:vp", lambda: shutil.move(h5(other), path)


def by_zarr(folder):
    path = store(folder)

    def change():
        zarr = pytest.importorskip("zarr")
        zarr.open(path, mode="r+")["vp"][:4] = 1

    return f"{path}/vp", change


@pytest.mark.parametrize("make", [by_npy, by_h5, by_zarr], ids=lambda make: make.__name__)
@pytest.mark.parametrize("when", ["built", "filled"])
def test_a_file_that_changes_until_it_is_read_is_noticed(make, when, tmp_path, monkeypatch):
    source, change = make(tmp_path)
    where = {"built": "outgrid.pipeline.compiled", "filled": "outgrid.execute.fill._Filling.levels"}
    before = pkgutil.resolve_name(where[when])

    def changing(*arguments, **others):
        found = before(*arguments, **others)
        change()
        return found

    monkeypatch.setattr(where[when], changing)
    with pytest.raises(UsageError, match="changed after it was opened"):
        run(source, tmp_path)
    assert not (tmp_path / "r" / "u.npy").exists()


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    np.save(tmp_path / "u.npy", VALUES)
    opened = []
    monkeypatch.setattr(
        "outgrid.execute.inputs.open_input",
        lambda *given: opened.append(given) or open_input(*given),
    )
    run(tmp_path / "u.npy", tmp_path)
    assert len(opened) == 1


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_header_with_extents_below_0_is_refused(suffix, tmp_path, capsys):
    """Two of them make a number of cells above 0."""
    nibabel = pytest.importorskip("nibabel")
    header = nibabel.Nifti1Header()
    header.set_data_shape((8, 7, 6))
    header["dim"][1:4], header["vox_offset"], header["magic"] = (8, -7, -6), 352, b"n+1"
    content = header.binaryblock + bytes(4 + 8 * 7 * 6 * 4)
    path = tmp_path / f"m{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    assert main(["import", str(path), "--to", str(tmp_path / "m.npy")]) == 4
    assert "shape (-6, -7, 8) from byte 352 on; they must be at least 0" in capsys.readouterr().err
    assert not (tmp_path / "m.npy").exists()


@pytest.mark.parametrize("suffix", [".vtkhdf", ".tif", ".nii", ".npy"])
def test_a_file_that_the_system_lets_grow_no_further_ends_with_words(suffix, tmp_path, capsys):
    np.save(tmp_path / "m.npy", np.ones((60, 70, 80)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        code = main(["import", str(tmp_path / "m.npy"), "--to", str(tmp_path / f"n{suffix}")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 4
    assert "File too large" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["m.npy"]


def test_a_file_of_hdf5_that_is_not_complete_leaves_room_to_close_it(tmp_path):
    """Where the disk is full the library cannot write what it holds, and the process crashed."""
    pytest.importorskip("h5py")
    path = tmp_path / "m.h5"
    output = Hdf5Output(path, image=False)
    array = Array("u", (100, 100, 100), np.dtype("f8"), (Axis("z"), Axis("y"), Axis("x")))
    output.array(array).write(tuple(map(range, array.shape)), np.ones(array.shape))
    assert path.stat().st_blocks * 512 >= 8_000_000
    output.close()
    assert path.stat().st_blocks * 512 < 100_000


def test_what_a_library_says_of_a_file_that_it_cannot_close_is_told(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    output = Hdf5Output(tmp_path / "m.h5", image=False)

    class Full:
        def close(self):
            raise RuntimeError("Can't decrement id ref count")

    monkeypatch.setattr(output, "file", Full())
    with pytest.raises(StoreError, match="cannot be written: Can't decrement"):
        output.close()
