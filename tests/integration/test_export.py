"""Results as files of other formats: what real readers find in them, and what is refused."""

import json
import os
import subprocess
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import outgrid as og
from outgrid import exports
from outgrid.errors import StoreError, UsageError
from outgrid.exports import convert, export
from outgrid.formats import InputFile, Sliced
from outgrid.storage import Joined, Piece

SHAPE = (20, 24, 70)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    problem = og.Problem(
        "heat7",
        SHAPE,
        steps=4,
        parameters={"k": 0.1},
        dtype="float32",
        initial={"u": "sin(x/9)*cos(y/7) + z/70"},
        snapshots=[og.Snapshot("u", every=2)],
    )
    return og.run(problem, memory="256 MiB", out=tmp_path_factory.mktemp("run") / "heat.run")


def by_numpy(path, name):
    return np.load(path)


def by_fromfile(path, name):
    return np.fromfile(path, "f4").reshape(SHAPE)


def by_h5py(path, name):
    pytest.importorskip("hdf5plugin")
    with pytest.importorskip("h5py").File(path) as file:
        return file[name][...]


def by_vtk_group(path, name):
    with pytest.importorskip("h5py").File(path) as file:
        image = file["VTKHDF"]
        assert image.attrs["Type"] == b"ImageData"
        assert list(image.attrs["WholeExtent"]) == [0, 69, 0, 23, 0, 19]
        return image["PointData"][name][...]


def by_xarray(path, name):
    with pytest.importorskip("xarray").open_dataset(path, engine="h5netcdf") as found:
        assert found[name].dims == ("z", "y", "x")
        return found[name].values


def by_zarr(path, name):
    found = pytest.importorskip("zarr").open(path, mode="r")[name]
    assert found.metadata.dimension_names == ("z", "y", "x")
    return found[...]


def by_tifffile(path, name):
    return pytest.importorskip("tifffile").imread(path)


def by_nibabel(path, name):
    return np.asarray(pytest.importorskip("nibabel").load(path).dataobj).T


FILES = [
    ("u.npy", {}, by_numpy),
    ("u.raw", {}, by_fromfile),
    ("u.h5", {}, by_h5py),
    ("u.h5", {"chunks": (7, 8, 64), "codec": "gzip:1"}, by_h5py),
    ("u.h5", {"codec": "zstd"}, by_h5py),
    ("u.nc", {}, by_xarray),
    ("u.nc", {"chunks": 16, "codec": "gzip"}, by_xarray),
    ("u.vtkhdf", {}, by_vtk_group),
    ("u.zarr", {}, by_zarr),
    ("u.zarr", {"chunks": 16, "codec": "zstd:1"}, by_zarr),
    ("u.zarr", {"chunks": (1, 24, 70), "codec": "blosc"}, by_zarr),
    ("u.zarr", {"chunks": 9, "codec": "gzip", "shards": False}, by_zarr),
    ("u.zarr", {"shards": False}, by_zarr),
    ("u.tif", {}, by_tifffile),
    ("u.nii", {}, by_nibabel),
]


@pytest.mark.parametrize(("name", "how", "read"), FILES)
def test_a_reader_finds_the_values_of_the_run(result, tmp_path, name, how, read):
    done = []
    found = export(
        result, tmp_path / name, memory_bytes=1 << 20, told=lambda *each: done.append(each), **how
    )
    np.testing.assert_array_equal(read(tmp_path / name, "u"), result["u"])
    assert done[-1] == (found.nbytes, found.nbytes) == (np.prod(SHAPE) * 4,) * 2
    assert [path.name for path in tmp_path.iterdir()] == [name]

    bare = {"shape": SHAPE, "dtype": "f4"} if name == "u.raw" else {}
    inside = InputFile(str(tmp_path / name), **bare)
    again = convert(inside, tmp_path / "again.npy")
    np.testing.assert_array_equal(np.load(again.path), result["u"])


def test_the_record_stands_beside_the_arrays(result, tmp_path):
    zarr = pytest.importorskip("zarr")
    export(result, tmp_path / "u.zarr")
    said = zarr.open(tmp_path / "u.zarr", mode="r")["u"].attrs["outgrid"]
    assert json.loads(said) == json.loads(json.dumps(result.record.to_dict()))


def test_a_record_of_any_length_fits_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    problem = og.Problem(
        "heat5",
        (12, 12),
        steps=9000,
        parameters={"k": np.linspace(0.01, 0.02, 9000)},
        dtype="float32",
        initial={"u": "x"},
    )
    result = og.run(problem, memory="256 MiB", out=tmp_path / "long.run")
    export(result, tmp_path / "u.h5")
    with h5py.File(tmp_path / "u.h5") as file:
        said = json.loads(file["u"].attrs["outgrid"])
    assert said["problem"]["parameters"]["k"] == result.record.problem["parameters"]["k"]


@pytest.mark.parametrize("suffix", ["npy", "raw", "h5", "nc", "zarr", "nii"])
@pytest.mark.parametrize("shape", [(3, 0, 2), (2, 2, 3, 2, 2)])
def test_arrays_of_any_shape_are_written(tmp_path, suffix, shape):
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    np.save(tmp_path / "u.npy", values)
    to = tmp_path / f"again.{suffix}"
    convert(InputFile(str(tmp_path / "u.npy")), to)
    bare = {"shape": shape, "dtype": "f4"} if suffix == "raw" else {}
    convert(InputFile(str(to), **bare), tmp_path / "back.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy"), values)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_the_name_in_a_file_may_end_in_a_slash(result, tmp_path, suffix):
    export(result, tmp_path / f"r.{suffix}", fields=["u", "snapshot.0"])
    source = InputFile(f"{tmp_path}/r.{suffix}/u/")
    assert convert(source, tmp_path / "again.h5").arrays == ("u",)
    np.testing.assert_array_equal(by_h5py(tmp_path / "again.h5", "u"), result["u"])


def test_nifti_has_the_signs_of_axes_in_its_affine(tmp_path):
    nibabel, h5py = pytest.importorskip("nibabel"), pytest.importorskip("h5py")
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = np.zeros((2, 3, 4), "f4")
        file["half"] = np.zeros((2, 3, 4), "f2")
        file["z"] = [5.0, 3.0]
        file["z"].make_scale("z")
        file["u"].dims[0].attach_scale(file["z"])
        file["u"].dims[1].label, file["u"].dims[2].label = "y", "x"
    convert(InputFile(f"{tmp_path}/u.h5:u"), tmp_path / "u.nii")
    image = nibabel.load(tmp_path / "u.nii")
    assert image.header.get_zooms() == (1, 1, 2)
    np.testing.assert_array_equal(np.diag(image.affine), [1, 1, -2, 1])
    assert image.affine[2, 3] == 5
    with pytest.raises(UsageError, match="NIfTI cannot store half, float16"):
        convert(InputFile(f"{tmp_path}/u.h5:half"), tmp_path / "half.nii")


def test_a_box_of_a_field_in_pieces_is_all_that_is_in_memory(tmp_path):
    values = np.random.default_rng(1).standard_normal((4, 60, 5000))
    np.save(tmp_path / "low.npy", values[:3])
    np.save(tmp_path / "high.npy", values[3:])
    places = ((tmp_path / "low.npy", range(3)), (tmp_path / "high.npy", range(3, 4)))
    joined = Joined([Piece(path, (planes.start, 0), planes, range(60)) for path, planes in places])
    source = exports._Pieces(joined)
    box = range(1, 4), range(3, 60), range(40, 90)
    tracemalloc.start()
    found = source.read(box)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, values[1:4, 3:60, 40:90])
    assert most_bytes < found.nbytes + 2 * source.decoded_bytes + 65536


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A run of a grid of which something is said, with a section among its snapshots."""
    problem = og.Problem(
        "heat7",
        SHAPE,
        steps=6,
        parameters={"k": 0.1},
        dtype="float32",
        initial={"u": "depth + east"},
        grid=og.Grid(
            spacing=(10.0, 5.0, 2.5),
            origin=(100.0, 0.0, -1.0),
            units="m",
            names=("depth", "north", "east"),
            fields={"u": {"units": "K", "long_name": "temperature"}},
        ),
        snapshots=[
            og.Snapshot("u", every=3, y=4),
            og.Snapshot("u", first=2, every=2, z="2:12:5", stride=4),
        ],
    )
    return og.run(problem, memory="256 MiB", out=tmp_path_factory.mktemp("run") / "told.run")


def test_what_is_said_of_the_grid_goes_with_the_values(told, tmp_path):
    xarray = pytest.importorskip("xarray")
    export(told, tmp_path / "u.nc", fields=["u", "snapshot.0"])
    with xarray.open_dataset(tmp_path / "u.nc", engine="h5netcdf") as found:
        assert found["u"].dims == ("depth", "north", "east")
        assert found["u"].attrs["units"] == "K"
        np.testing.assert_array_equal(found["depth"], 100 + 10.0 * np.arange(20))
        assert found["east"].attrs["units"] == "m"
        assert found["snapshot.0"].dims == ("step", "depth", "east")
        np.testing.assert_array_equal(found["step"], [3, 6])
    export(told, tmp_path / "u.vtkhdf")
    with pytest.importorskip("h5py").File(tmp_path / "u.vtkhdf") as file:
        assert list(file["VTKHDF"].attrs["Spacing"]) == [2.5, 5.0, 10.0]
        assert list(file["VTKHDF"].attrs["Origin"]) == [-1.0, 0.0, 100.0]


@pytest.mark.parametrize("how", ["method", "engine", "guess"])
def test_xarray_opens_a_run_with_coordinates(told, how):
    xarray = pytest.importorskip("xarray")
    found = {
        "method": told.to_xarray,
        "engine": lambda: xarray.open_dataset(told.out, engine="outgrid"),
        "guess": lambda: xarray.open_dataset(told.out),
    }[how]()
    assert set(found) == {"u", "snapshot.0", "snapshot.1"}
    assert found["u"].attrs == {"units": "K", "long_name": "temperature"}
    whole = np.array(told["u"])
    np.testing.assert_array_equal(found["u"], whole)
    near = found["u"].sel(depth=130, method="nearest").isel(east=slice(3, 9, 2), north=[1, 5])
    np.testing.assert_array_equal(near, whole[3, :, 3:9:2][[1, 5]])
    assert found["snapshot.0"].dims == ("step", "depth", "east")
    np.testing.assert_array_equal(found["snapshot.0"], told.snapshots[0])
    last = found["snapshot.1"]
    np.testing.assert_array_equal(last.coords[last.dims[0]], [2, 4, 6])
    np.testing.assert_array_equal(last.coords[last.dims[1]], [120, 170])
    np.testing.assert_array_equal(last.coords[last.dims[3]], -1 + 10.0 * np.arange(18))


def test_snapshots_have_an_axis_of_steps(result, tmp_path):
    zarr = pytest.importorskip("zarr")
    export(result, tmp_path / "s.zarr", fields=["u", "snapshot.0"])
    found = zarr.open(tmp_path / "s.zarr", mode="r")
    assert found["snapshot.0"].metadata.dimension_names == ("step", "z", "y", "x")
    np.testing.assert_array_equal(found["snapshot.0"][...], result.snapshots[0])


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 28])
def test_levels_are_means_of_the_level_before(result, tmp_path, memory_bytes):
    zarr = pytest.importorskip("zarr")
    export(result, tmp_path / "p.zarr", levels=True, chunks=16, memory_bytes=memory_bytes)
    group = zarr.open(tmp_path / "p.zarr", mode="r")["u"]
    (scales,) = group.attrs["ome"]["multiscales"]
    assert [each["path"] for each in scales["datasets"]] == ["0", "1"]
    assert [axis["name"] for axis in scales["axes"]] == ["z", "y", "x"]
    assert scales["datasets"][1]["coordinateTransformations"] == [
        {"type": "scale", "scale": [2.0] * 3},
        {"type": "translation", "translation": [0.5] * 3},
    ]
    fine, coarse = group["0"][...].astype("float64"), group["1"][...]
    wanted = fine.reshape(10, 2, 12, 2, 35, 2).mean((1, 3, 5))
    np.testing.assert_allclose(coarse, wanted, rtol=1e-6, atol=1e-6)


def exact_means(values):
    """Means of up to eight cells, each in fractions, ties to even."""
    means = np.empty([-(-extent // 2) for extent in values.shape], object)
    for index in np.ndindex(means.shape):
        means[index] = [*values[tuple(slice(2 * k, 2 * k + 2) for k in index)].ravel().tolist()]
    return np.vectorize(lambda each: round(Fraction(sum(each), len(each))))(means)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32"])
def test_levels_of_whole_numbers_are_exact(tmp_path, dtype):
    zarr = pytest.importorskip("zarr")
    limits = np.iinfo(dtype)
    values = np.random.default_rng(2).integers(
        limits.min, limits.max, (3, 4, 66), dtype, endpoint=True
    )
    values[:2, :2, :8] = limits.max
    values[:2, 2:, :8] = limits.min
    values[2, :, ::2] //= 3
    np.save(tmp_path / "u.npy", values)
    convert(InputFile(str(tmp_path / "u.npy")), tmp_path / "u.zarr", levels=True)
    found = zarr.open(tmp_path / "u.zarr", mode="r")["u/1"]
    assert found.dtype == dtype
    assert found[...].tolist() == exact_means(values).tolist()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_levels_of_complex_numbers_have_both_parts(tmp_path, dtype):
    zarr = pytest.importorskip("zarr")
    parts = np.random.default_rng(2).standard_normal((2, 4, 4, 66))
    values = (parts[0] + 1j * parts[1]).astype(dtype)
    np.save(tmp_path / "u.npy", values)
    convert(InputFile(str(tmp_path / "u.npy")), tmp_path / "u.zarr", levels=True)
    found = zarr.open(tmp_path / "u.zarr", mode="r")["u/1"]
    assert found.dtype == dtype
    wanted = values.reshape(2, 2, 2, 2, 33, 2).mean((1, 3, 5))
    np.testing.assert_allclose(found[...], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("u.csv", {}, [".csv", ".zarr"]),
        ("u.sgy", {}, ["u.sgy", "--field traces"]),
        ("u.sgy", {"fields": ["traces"]}, ["'traces'", "snapshot.0"]),
        ("u.npy", {"codec": "zstd"}, ["u.npy", "without chunks", "codec"]),
        ("u.npy", {"fields": ["u", "snapshot.0"]}, ["one array", "--field u"]),
        ("u.npy", {"fields": ["w"]}, ["'w'", "known: u, snapshot.0"]),
        ("u.zarr", {"codec": "lzma"}, ["'lzma'", "zstd"]),
        ("u.zarr", {"codec": "zstd:best"}, ["'best'", "zstd:3"]),
        ("u.zarr", {"codec": "zstd:99"}, ["99", "-7 to 22"]),
        ("u.zarr", {"codec": "gzip:12"}, ["level of gzip", "0 to 9", "12"]),
        ("u.zarr", {"codec": "blosc:-1"}, ["level of blosc", "0 to 9", "-1"]),
        ("u.zarr", {"codec": "none:1"}, ["none has no levels", ":1"]),
        ("u.h5", {"codec": "gzip:10"}, ["level of gzip", "0 to 9", "10"]),
        ("u.h5", {"codec": "lzf:3"}, ["lzf has no levels", ":3"]),
        ("u.zarr", {"chunks": (4, 4)}, ["(4, 4)", str(SHAPE)]),
        ("u.zarr", {"chunks": 0}, ["at least 1"]),
        ("u.h5", {"levels": True}, ["levels", "Zarr"]),
        ("u.nii.gz", {}, [".nii"]),
        ("no/u.npy", {}, ["no", "not a folder"]),
        ("u.npy", {"memory_bytes": 1000}, ["1000", "memory"]),
        ("u.vtkhdf", {"fields": ["u", "snapshot.0"]}, ["snapshot.0", "other times", "--field"]),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(result, tmp_path, name, how, words):
    with pytest.raises(UsageError) as caught:
        export(result, tmp_path / name, **how)
    assert all(word in str(caught.value) for word in words), caught.value
    assert ".new" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_where_that_is_said_and_only_when_the_new_one_is_whole(
    result, tmp_path, monkeypatch
):
    path = tmp_path / "u.npy"
    path.write_text("mine")
    with pytest.raises(UsageError, match="not overwritten"):
        export(result, path)
    assert path.read_text() == "mine"

    reads = 0

    def broken(self, box):
        nonlocal reads
        reads += 1
        if reads == 3:
            raise StoreError("no more of it", path=path)
        return np.zeros([len(cells) for cells in box])

    monkeypatch.setattr(Sliced, "read", broken)
    monkeypatch.setattr(
        "outgrid.exports._field",
        lambda *_: Sliced(path, np.zeros((9, 400, 400)), (1, 1, 400), lambda: None),
    )
    with pytest.raises(StoreError, match="no more of it"):
        export(result, path, overwrite=True, memory_bytes=1 << 20)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    export(result, path, overwrite=True)
    np.testing.assert_array_equal(np.load(path), result["u"])


@pytest.mark.parametrize("name", ["u.npy", "u.zarr"])
def test_files_of_others_beside_an_export_stay(result, tmp_path, name):
    pytest.importorskip("zarr")
    path = tmp_path / name
    mine = [tmp_path / f"{name}.new", tmp_path / f"{name}.{'a' * 16}.new"]
    for file in mine:
        file.write_text("mine")
    full = tmp_path / f"{name}.{'b' * 16}.new"
    full.mkdir()
    (full / "notes").write_text("mine")
    killed = tmp_path / f"{name}.{'c' * 16}.new"
    killed.mkdir()
    (killed / f"{name}.new").write_text("half")
    for _ in range(2):
        export(result, path, fields=["u"], overwrite=True)
    assert [file.read_text() for file in (*mine, full / "notes")] == ["mine"] * 3
    assert {*tmp_path.iterdir()} == {path, *mine, full}


def test_both_verbs_say_what_they_wrote(result, tmp_path):
    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "outgrid", *map(str, words)], capture_output=True, text=True
        )

    done = call("export", result.out, "--to", tmp_path / "u.tif", "--json")
    assert json.loads(done.stdout)["arrays"] == ["u"], done.stderr
    done = call("import", tmp_path / "u.tif", "--to", tmp_path / "t.npy", "--transpose", "2,0,1")
    assert done.returncode == 0, done.stderr
    assert "t.npy: u" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), result["u"].transpose(2, 0, 1))
    done = call("import", tmp_path / "u.tif", "--to", tmp_path / "t.npy")
    assert done.returncode == 2
    assert "not overwritten" in done.stderr


@pytest.mark.parametrize("codec", ["none", "zstd:1"])
def test_levels_and_codecs_keep_to_the_memory_limit(tmp_path, codec):
    zarr = pytest.importorskip("zarr")
    shape, limit = (96, 128, 640), 6 << 20
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    np.save(tmp_path / "u.npy", values)
    file = InputFile(str(tmp_path / "u.npy"))
    how = {"chunks": 32, "codec": codec, "levels": True, "overwrite": True}
    convert(file, tmp_path / "u.zarr", memory_bytes=limit, **how)  # loads libraries
    tracemalloc.start()
    convert(file, tmp_path / "u.zarr", memory_bytes=limit, **how)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < limit + (2 << 20)  # what libraries keep of chunks
    group = zarr.open(tmp_path / "u.zarr", mode="r")["u"]
    np.testing.assert_array_equal(group["0"][...], values)
    assert group["1"].chunks == (32, 32, 32)
    wanted = values.reshape(48, 2, 64, 2, 320, 2).mean((1, 3, 5), dtype="f8")
    np.testing.assert_allclose(group["1"][...], wanted, rtol=1e-6)
    with pytest.raises(UsageError, match="coarser levels of u take"):
        convert(file, tmp_path / "v.zarr", chunks=64, levels=True, memory_bytes=limit)
    assert not (tmp_path / "v.zarr").exists()


@pytest.mark.parametrize("shards", [True, False])
def test_what_cannot_be_written_ends_an_export(result, tmp_path, monkeypatch, shards):
    def full(*_):
        raise OSError(28, os.strerror(28))

    pytest.importorskip("zarr")
    monkeypatch.setattr("outgrid.formats.chunks.os.pwrite", full)
    with pytest.raises(StoreError, match="No space left"):
        export(result, tmp_path / "u.zarr", chunks=8, codec="zstd", shards=shards)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("shape", [(23, 40, 70), (150, 190), (9, 13, 33)])
def test_shards_hold_whole_chunks_and_the_last_ones_less(tmp_path, monkeypatch, shape, direct):
    zarr = pytest.importorskip("zarr")
    if not direct:  # as a file system that has no direct transfers
        opened = os.open

        def refused(path, flags, *mode):
            if flags & os.O_DIRECT:
                raise OSError(22, os.strerror(22))
            return opened(path, flags, *mode)

        monkeypatch.setattr("outgrid.formats.chunks.os.open", refused)
    monkeypatch.setattr("outgrid.formats.chunks.SHARD_BYTES", 16 << 10)
    values = np.random.default_rng(5).random(shape, "f4")
    np.save(tmp_path / "u.npy", values)
    file = InputFile(str(tmp_path / "u.npy"))
    convert(file, tmp_path / "u.zarr", chunks=8, codec="zstd:1", memory_bytes=1 << 20)
    array = zarr.open(tmp_path / "u.zarr", mode="r")["u"]
    assert array.chunks == (8,) * len(shape)
    assert 8 ** len(shape) * 4 < np.prod(array.shards) * 4 <= 16 << 10
    files = [path for path in (tmp_path / "u.zarr/u/c").rglob("*") if path.is_file()]
    grid = zip(shape, array.shards, strict=True)
    assert len(files) == np.prod([-(-extent // cells) for extent, cells in grid]) > 1
    np.testing.assert_array_equal(array[...], values)


def test_only_zarr_has_shards(result, tmp_path):
    with pytest.raises(UsageError, match="has no shards"):
        export(result, tmp_path / "u.h5", shards=False)


def by_vtk(path, name, step=0):
    """An array of an image as VTK's own reader gives it: its values, and when they are of."""
    reader = pytest.importorskip("vtkmodules.vtkIOHDF").vtkHDFReader()
    to_numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetStep(step)
    reader.Update()
    image = reader.GetOutput()
    values = to_numpy(image.GetPointData().GetArray(name))
    return values.reshape(image.GetDimensions()[::-1]), reader.GetTimeValue(), image


@pytest.mark.parametrize("how", [{}, {"chunks": 8, "codec": "gzip"}])
def test_vtk_reads_fields(tmp_path, how):
    grid = og.Grid(spacing=(2, 1, 0.5), origin=(1, 0, -3))
    problem = og.Problem("heat7", (5, 7, 9), steps=1, initial={"u": "x+y*z"}, grid=grid)
    found = og.run(problem, memory="256 MiB", out=tmp_path / "run")
    export(found, tmp_path / "u.vtkhdf", **how)
    values, _, image = by_vtk(tmp_path / "u.vtkhdf", "u")
    np.testing.assert_array_equal(values, found["u"])
    assert image.GetSpacing() == (0.5, 1, 2)
    assert image.GetOrigin() == (-3, 0, 1)


@pytest.mark.parametrize("shape", [(5, 7, 9), (7, 9)])
def test_vtk_reads_snapshots_as_steps_of_time(tmp_path, shape):
    stencil = "heat7" if len(shape) == 3 else "heat5"
    problem = og.Problem(
        stencil,
        shape,
        steps=5,
        initial={"u": "x*x+y"},
        parameters={"k": 0.1},
        snapshots=[og.Snapshot("u", every=2)],
        grid=og.Grid(dt=0.25),
    )
    found = og.run(problem, memory="256 MiB", out=tmp_path / "run")
    export(found, tmp_path / "s.vtkhdf", fields=["snapshot.0"])
    for step in range(2):
        values, time, _ = by_vtk(tmp_path / "s.vtkhdf", "snapshot.0", step)
        np.testing.assert_array_equal(values.reshape(shape), found.snapshots[0][step])
        assert time == 0.25 * (2 * step + 2)
    export(found, tmp_path / "u.vtkhdf", fields=["u"])
    values, _, _ = by_vtk(tmp_path / "u.vtkhdf", "u")
    np.testing.assert_array_equal(values.reshape(shape), found["u"])


@pytest.mark.parametrize("how", [{}, {"chunks": 4}, {"codec": "gzip"}])
def test_vtk_reads_a_snapshot_of_one_frame(tmp_path, how):
    kept = [og.Snapshot("u", every=3), og.Snapshot("u", every=3, z=2), og.Snapshot("u", every=2)]
    problem = og.Problem("heat7", (5, 7, 9), steps=3, initial={"u": "x*x+y"}, snapshots=kept)
    found = og.run(problem, memory="256 MiB", out=tmp_path / "run")
    for number in range(3):
        path, name = tmp_path / f"{number}.vtkhdf", f"snapshot.{number}"
        export(found, path, fields=[name], **how)
        values, *_ = by_vtk(path, name)
        np.testing.assert_array_equal(values.squeeze(), found.snapshots[number][0].squeeze())
    with pytest.raises(UsageError, match="has other times"):
        export(found, tmp_path / "s.vtkhdf", fields=["snapshot.0", "snapshot.2"])


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run of a cube with snapshots of as many cells, which are others."""
    kept = [
        og.Snapshot("u", every=2, z="0:8", y="0:8", x="0:8"),
        og.Snapshot("u", every=2, stride=2),
        og.Snapshot("u", every=2, y=4),
        og.Snapshot("u", every=2, z=3),
        og.Snapshot("u", every=2, z="8:16", y="0:8", x="0:8"),
        og.Snapshot("u", every=2, y=6),
    ]
    problem = og.Problem(
        "heat7", (16, 16, 16), steps=4, parameters={"k": 0.1}, initial={"u": "x"}, snapshots=kept
    )
    return og.run(problem, memory="256 MiB", out=tmp_path_factory.mktemp("run") / "cut.run")


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        (0, 1, ["8 along z_snapshot.1 from 0 by 2", "8 along z from 0 by 1"]),
        (2, 3, ["16 along y from 0 by 1", "16 along z from 0 by 1"]),
        (0, 4, ["from 8 by 1", "from 0 by 1"]),
        (2, 0, ["8 along", "16 along"]),
    ],
)
def test_an_image_has_one_grid(cut, tmp_path, first, other, words):
    names = [f"snapshot.{number}" for number in (first, other)]
    with pytest.raises(UsageError, match="separate file, --field") as caught:
        export(cut, tmp_path / "s.vtkhdf", fields=names)
    assert all(word in str(caught.value) for word in [names[1], *words]), caught.value
    assert list(tmp_path.iterdir()) == []


def test_an_image_has_all_arrays_of_its_grid(cut, tmp_path):
    export(cut, tmp_path / "s.vtkhdf", fields=["snapshot.2", "snapshot.5"])
    for number in (2, 5):
        values, *_ = by_vtk(tmp_path / "s.vtkhdf", f"snapshot.{number}")
        np.testing.assert_array_equal(values[0], cut.snapshots[number][0])


def test_chunks_that_cannot_be_made_durable_end_an_export(result, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    real, folder = os.fsync, tmp_path / "r.zarr"
    export(result, folder, chunks=8, codec="zstd:1")

    def refused(file):
        if "/c/" in os.readlink(f"/proc/self/fd/{file}"):
            raise OSError(5, os.strerror(5))
        real(file)

    monkeypatch.setattr("outgrid.durable.os.fsync", refused)
    with pytest.raises(StoreError, match="Input/output error"):
        export(result, folder, chunks=4, codec="zstd:1", overwrite=True)
    monkeypatch.undo()
    assert zarr.open(folder, mode="r")["u"].chunks == (8, 8, 8)
    assert [*tmp_path.iterdir()] == [folder]


KILLED = """
import os, signal, sys
from outgrid.exports import convert
from outgrid.formats import InputFile, chunks

real, left = os.pwrite, [int(sys.argv[3])]

def write(file, content, at):  # the last one stops in the middle
    left[0] -= 1
    if left[0] >= 0:
        return real(file, content, at)
    real(file, content[: len(content) // 2 // 4096 * 4096], at)
    os.kill(os.getpid(), signal.SIGKILL)

chunks.os.pwrite = write
convert(
    InputFile(sys.argv[1]), sys.argv[2], chunks=8, codec=sys.argv[4],
    levels=sys.argv[5] == "levels", memory_bytes=1 << 20, overwrite=True,
)
"""


@pytest.mark.parametrize(
    ("writes", "codec", "levels"),
    [(0, "zstd:1", ""), (1, "zstd:1", ""), (2, "none", ""), (2, "gzip", "levels")],
)
def test_an_export_killed_inside_a_shard_leaves_the_old_one_and_is_done_again(
    result, tmp_path, writes, codec, levels
):
    zarr = pytest.importorskip("zarr")
    folder, file = tmp_path / "u.zarr", result.path("u")
    convert(InputFile(str(file)), folder, chunks=4)
    words = [str(file), str(folder), str(writes), codec, levels]
    assert subprocess.run([sys.executable, "-c", KILLED, *words]).returncode == -9
    assert len([*tmp_path.iterdir()]) == 2  # it, and what was begun
    assert zarr.open(folder, mode="r")["u"].chunks == (4, 4, 4)
    np.testing.assert_array_equal(zarr.open(folder, mode="r")["u"][...], result["u"])
    convert(
        InputFile(str(file)),
        folder,
        chunks=8,
        codec=codec,
        levels=bool(levels),
        overwrite=True,
    )
    array = zarr.open(folder, mode="r")["u/0" if levels else "u"]
    np.testing.assert_array_equal(array[...], result["u"])
    assert [*tmp_path.iterdir()] == [folder]
