"""What every format of inputs must do, against a plain array."""

import gzip
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid.errors import Error, StoreError, UsageError
from outgrid.formats import Gzipped, InputFile, formats, open_file, open_input
from outgrid.storage import queued

SHAPE = (7, 12, 20)
RANDOM = np.random.default_rng(5)
VALUES = RANDOM.standard_normal(SHAPE).astype("float32")


def npy(folder):
    np.save(folder / "u.npy", VALUES)
    return InputFile(folder / "u.npy")


def npy_fortran(folder):
    np.save(folder / "u.npy", np.asfortranarray(VALUES))
    return InputFile(folder / "u.npy", order="F")


def raw(folder):
    (folder / "u.raw").write_bytes(b"head" + VALUES.astype(">f4").tobytes())
    return InputFile(folder / "u.raw", shape=SHAPE, dtype=">f4", offset=4)


def raw_fortran(folder):
    (folder / "u.bin").write_bytes(VALUES.tobytes("F"))
    return InputFile(folder / "u.bin", shape=SHAPE, dtype="float32", order="F")


def hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.h5", "w") as file:
        file["rock/u"] = VALUES
        file["rock/other"] = np.zeros(3)
    return InputFile(f"{folder}/m.h5:/rock/u")


def hdf5_chunks(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.hdf5", "w") as file:
        file.create_dataset("u", data=VALUES, chunks=(3, 5, 8), compression="gzip", shuffle=True)
    return InputFile(folder / "m.hdf5")


def hdf5_of_kind(folder, kind, stored):
    """Numbers in one piece, which the library converts to the ``kind`` of the file."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"u", kind, h5py.h5s.create_simple(SHAPE))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, stored)
    return InputFile(folder / "m.h5"), stored


def hdf5_of_another_type(folder):
    """Numbers of bfloat16 in one piece, which the library gives as float32."""
    h5py = pytest.importorskip("h5py")
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    stored = (VALUES.view("u4") & 0xFFFF0000).view("f4")
    return hdf5_of_kind(folder, kind, stored)


def hdf5_of_12_bits(folder):
    h5py = pytest.importorskip("h5py")
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    kind.set_offset(4)
    stored = np.round(VALUES * 100).astype("i2")
    return hdf5_of_kind(folder, kind, stored)


def netcdf4(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "m.nc", "w") as file:
        stored = np.round(VALUES * 1000).astype("int16")
        file["u"] = stored
        file["u"].attrs["scale_factor"] = np.float64(0.25)
        file["u"].attrs["add_offset"] = np.float64(-3.0)
        file["u"].attrs["_FillValue"] = np.int16(-32768)
    return InputFile(f"{folder}/m.nc:u"), stored * 0.25 - 3.0


def netcdf3(folder):
    io = pytest.importorskip("scipy.io")
    with io.netcdf_file(folder / "m.nc", "w") as file:
        for name, extent in zip("zyx", SHAPE, strict=True):
            file.createDimension(name, extent)
        file.createVariable("u", "f4", ("z", "y", "x"))[:] = VALUES
        file.createVariable("x", "f4", ("x",))[:] = np.arange(SHAPE[2])
    return InputFile(folder / "m.nc")


def netcdf3_records(folder):
    io = pytest.importorskip("scipy.io")
    with io.netcdf_file(folder / "m.nc", "w") as file:
        for name, extent in zip("tzyx", (None, *SHAPE), strict=True):
            file.createDimension(name, extent)
        file.createVariable("u", "f4", ("t", "z", "y", "x"))[:] = np.stack([VALUES * 2, VALUES])
        file.createVariable("w", "f8", ("t", "x"))[:] = np.ones((2, SHAPE[2]))
    return InputFile(f"{folder}/m.nc:u", index=(1,))


def zarr3(folder):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "m.zarr", mode="w")
    made = group.create_array("rock/u", shape=SHAPE, dtype="f4", chunks=(2, 5, 20))
    made[...] = VALUES
    return InputFile(f"{folder}/m.zarr/rock/u")


def zarr2(folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(
        folder / "m.zarr", shape=SHAPE, dtype=">f4", chunks=(4, 4, 4), zarr_format=2
    )
    made[...] = VALUES
    return InputFile(folder / "m.zarr")


def tiff(folder):
    pytest.importorskip("tifffile").imwrite(folder / "u.tif", VALUES, byteorder=">")
    return InputFile(folder / "u.tif")


def tiff_deflated(folder):
    pytest.importorskip("tifffile").imwrite(folder / "u.tiff", VALUES, compression="zlib")
    return InputFile(folder / "u.tiff")


def nifti(folder):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(VALUES.T, np.eye(4)), folder / "u.nii")
    return InputFile(folder / "u.nii")


def nifti_packed(folder):
    nibabel = pytest.importorskip("nibabel")
    stored = np.round(VALUES * 100).astype("int16")
    image = nibabel.Nifti1Image(stored.T, np.eye(4))
    image.header.set_slope_inter(0.5, 2.0)
    nibabel.save(image, folder / "u.nii.gz")
    loaded = nibabel.load(folder / "u.nii.gz")
    return InputFile(folder / "u.nii.gz"), np.asarray(loaded.dataobj).T


def segy(folder):
    segyio = pytest.importorskip("segyio")
    spec = segyio.spec()
    spec.sorting, spec.format = 2, 5
    spec.ilines, spec.xlines = np.arange(SHAPE[0]) + 1, np.arange(SHAPE[1]) + 1
    spec.samples = np.arange(SHAPE[2]) * 4.0
    with segyio.create(str(folder / "u.sgy"), spec) as file:
        for number, trace in enumerate(VALUES.reshape(-1, SHAPE[2])):
            inline, crossline = divmod(number, SHAPE[1])
            file.header[number] = {189: inline + 1, 193: crossline + 1}
            file.trace[number] = trace
    return InputFile(folder / "u.sgy")


MAKERS = [
    npy,
    npy_fortran,
    raw,
    raw_fortran,
    hdf5,
    hdf5_chunks,
    hdf5_of_another_type,
    hdf5_of_12_bits,
    netcdf4,
    netcdf3,
    netcdf3_records,
    zarr3,
    zarr2,
    tiff,
    tiff_deflated,
    nifti,
    nifti_packed,
    segy,
]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def made(request, tmp_path_factory):
    """A file of a format, and the values in it."""
    found = request.param(tmp_path_factory.mktemp(request.param.__name__))
    return found if isinstance(found, tuple) else (found, VALUES)


def test_every_format_is_tried():
    tried = {make.__name__.partition("_")[0].rstrip("0123456789") for make in MAKERS}
    assert len({each.name for each in formats().values()}) == len(tried)


def boxes():
    def cells(extent):
        ends = st.tuples(st.integers(0, extent - 1), st.integers(1, extent))
        return ends.filter(lambda pair: pair[0] < pair[1]).map(lambda pair: range(*pair))

    return st.tuples(*map(cells, SHAPE))


def test_any_box_holds_the_values_that_were_written(made):
    file, values = made
    source = open_input(file, SHAPE)
    assert source.shape == SHAPE
    assert len(source.chunk) == len(SHAPE)

    @settings(max_examples=25)
    @given(boxes())
    def check(box):
        found = source.read(box)
        assert found.dtype == source.dtype
        wanted = values[tuple(slice(cells.start, cells.stop) for cells in box)]
        np.testing.assert_array_equal(found, wanted)

    check()
    source.close()


def test_a_run_begins_with_the_values_of_the_file(made, tmp_path):
    file, values = made
    problem = og.Problem(
        "heat7", SHAPE, steps=2, parameters={"k": 0.1}, dtype="float64", initial={"u": file}
    )
    plain = og.Problem(
        "heat7", SHAPE, steps=2, parameters={"k": 0.1}, dtype="float64",
        initial={"u": values.astype("float64")},
    )  # fmt: skip
    one = og.run(problem, memory="256 MiB", out=tmp_path / "one")
    other = og.run(plain, memory="256 MiB", out=tmp_path / "other")
    np.testing.assert_array_equal(one["u"], other["u"])


def test_plans_count_the_libraries_that_read_a_file(made):
    file, values = made

    def plan(initial):
        problem = og.Problem("heat7", SHAPE, steps=2, parameters={"k": 0.1}, initial={"u": initial})
        return og.plan(problem, memory="400 MiB").memory.fixed_bytes

    assert plan(values) - plan(0.0) == values.nbytes
    assert plan(file) - plan(0.0) == file.format.library_bytes
    assert bool(file.format.library_bytes) == bool(file.format.extra)


def test_a_file_that_is_compressed_as_a_whole_is_read_in_order_and_back(tmp_path):
    path = tmp_path / "u.gz"
    path.write_bytes(gzip.compress(b"1234" + VALUES.tobytes()))
    source = Gzipped(path, SHAPE, VALUES.dtype, 4)
    for plane in (0, 1, 5, 2):
        found = source.read((range(plane, plane + 2), range(3, 9), range(20)))
        np.testing.assert_array_equal(found, VALUES[plane : plane + 2, 3:9])
    source.close()


def test_records_of_one_number_each(tmp_path):
    io = pytest.importorskip("scipy.io")
    with io.netcdf_file(tmp_path / "m.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 2)
        file.createVariable("u", "f8", ("t",))[:] = np.arange(5.0)
        file.createVariable("w", "f4", ("t", "x"))[:] = np.ones((5, 2))
    asked = InputFile(f"{tmp_path}/m.nc:u")
    with closing(open_file(asked)) as source, closing(queued(open_file(asked))) as other:
        for each in (source, other):
            np.testing.assert_array_equal(each.read((range(1, 4),)), [1, 2, 3])
    og.convert(asked, tmp_path / "u.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "u.npy"), np.arange(5.0))


def test_a_single_number_is_no_array(tmp_path):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    np.save(tmp_path / "u.npy", np.float32(3))
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = 3.0
    zarr.create_array(tmp_path / "u.zarr", shape=(), dtype="f4")[...] = 3
    for name in ("u.npy", "u.h5", "u.zarr"):
        for opened in (open_file, lambda file: open_input(file, SHAPE)):
            with pytest.raises(UsageError, match=rf"{name} holds a single number, of shape \(\)"):
                opened(InputFile(str(tmp_path / name)))


def test_other_axes_are_taken_where_they_are_asked_for(made):
    file, values = made
    turned = values.transpose(2, 0, 1)
    asked = InputFile.from_dict(file.to_dict() | {"transpose": (2, 0, 1)})
    source = open_input(asked, turned.shape)
    found = source.read((range(1, 20), range(7), range(2, 5)))
    np.testing.assert_array_equal(found, turned[1:, :, 2:5])
    source.close()
    with pytest.raises(UsageError, match=r"transpose=\(2, 0, 1\)"):
        open_input(file, turned.shape)


def test_values_of_another_shape_are_brought_onto_the_grid(made):
    file, values = made
    asked = InputFile.from_dict(file.to_dict() | {"interp": "linear"})
    finer = tuple(2 * extent - 1 for extent in SHAPE)
    source = open_input(asked, finer)
    whole = source.read(tuple(map(range, finer)))
    np.testing.assert_array_equal(whole[::2, ::2, ::2], values)
    middle = (values[:-1, :, :].astype("float64") + values[1:, :, :]) / 2
    np.testing.assert_allclose(whole[1::2, ::2, ::2], middle, rtol=0, atol=1e-12 * 1e4)
    part = source.read((range(3, 8), range(23), range(11, 12)))
    np.testing.assert_array_equal(part, whole[3:8, :, 11:12])
    source.close()


def test_a_file_that_was_cut_off_is_refused(made, tmp_path):
    file, _ = made
    if file.file.is_dir():
        pytest.skip("a store of many files; a chunk that is not there has no values")
    content = file.file.read_bytes()
    path = tmp_path / file.file.name
    path.write_bytes(content[: len(content) * 2 // 3])
    cut = InputFile.from_dict(file.to_dict() | {"path": str(path)})
    with closing(open_input(file, SHAPE)) as whole:
        straight = whole.at_once > 1

    def read():
        with closing(open_input(cut, SHAPE)) as source:
            assert not straight  # what is not decoded is compared with the size of the file
            source.read(tuple(map(range, SHAPE)))

    with pytest.raises((StoreError, UsageError)):
        read()


def test_what_is_no_file_of_the_format_is_refused(made, tmp_path):
    file, _ = made
    if file.format.bare:
        pytest.skip("any bytes are numbers")
    path = tmp_path / file.file.name
    if file.file.is_dir():
        path.mkdir()
    else:
        path.write_bytes(b"no such thing" * 99)
    odd = InputFile.from_dict(file.to_dict() | {"path": str(path)})
    with pytest.raises(Error, match=path.name):
        open_input(odd, SHAPE)


def test_a_missing_library_says_how_to_get_it(made, monkeypatch):
    file, _ = made
    if not file.format.extra:
        pytest.skip("needs no library")

    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("outgrid.formats.registry.importlib.import_module", absent)
    opener = __import__(file.format.module, fromlist=["open_source"]).open_source
    with pytest.raises(UsageError, match=rf"pip install 'outgrid\[{file.format.extra}\]'"):
        opener(file)
