"""Arrays of other libraries as initial values: what is read of them, and what is refused."""

import re

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError, InfeasiblePlan, StoreError, UsageError
from outgrid.storage import Joined, Piece

SHAPE = (20, 24, 70)
VALUES = np.random.default_rng(3).standard_normal(SHAPE)
GRID = og.Grid(
    spacing=(10.0, 5.0, 2.5),
    origin=(100.0, 0.0, -1.0),
    units=("m", "", ""),
    names=("depth", "north", "east"),
)


def in_memory(folder):
    return VALUES


def in_fortran_order(folder):
    return np.asfortranarray(VALUES)


def big_endian(folder):
    return VALUES.astype(">f4")


def mapped(folder):
    np.save(folder / "u.npy", VALUES)
    return np.load(folder / "u.npy", mmap_mode="r")


def mapped_for_changes(folder):
    np.save(folder / "u.npy", np.zeros(SHAPE))
    changed = np.load(folder / "u.npy", mmap_mode="c")
    changed[...] = VALUES
    return changed


def by_dask(folder):
    dask = pytest.importorskip("dask.array")
    return dask.from_array(VALUES, chunks=(6, 10, 32)) * 2 - 1


def labelled(folder):
    return pytest.importorskip("xarray").DataArray(VALUES, dims=("z", "y", "x"))


def labelled_in_chunks(folder):
    pytest.importorskip("dask.array")
    return labelled(folder).chunk({"z": 3}) + 1


def labelled_in_a_file(folder):
    xarray = pytest.importorskip("xarray")
    labelled(folder).to_dataset(name="u").to_netcdf(folder / "m.nc", engine="h5netcdf")
    return xarray.open_dataset(folder / "m.nc", engine="h5netcdf")["u"]


def by_h5py(folder):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "m.h5", "w")
    return file.create_dataset("u", data=VALUES, chunks=(4, 8, 16))


def by_zarr(folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(folder / "m.zarr", shape=SHAPE, dtype="f8", chunks=(5, 7, 70))
    made[...] = VALUES
    return made


MAKERS = [
    in_memory,
    in_fortran_order,
    big_endian,
    mapped,
    mapped_for_changes,
    by_dask,
    labelled,
    labelled_in_chunks,
    labelled_in_a_file,
    by_h5py,
    by_zarr,
]


def problem(initial, shape=SHAPE, steps=2, **given):
    return og.Problem(
        "heat7", shape, steps=steps, parameters={"k": 0.1}, initial={"u": initial}, **given
    )


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_run_begins_with_the_values_of_the_array(make, tmp_path):
    array = make(tmp_path)
    found = og.run(problem(array), memory="400 MiB", out=tmp_path / "one")
    wanted = np.ascontiguousarray(np.asarray(array), "float64")
    np.save(tmp_path / "wanted.npy", wanted)
    other = og.run(problem(tmp_path / "wanted.npy"), memory="400 MiB", out=tmp_path / "other")
    np.testing.assert_array_equal(found["u"], other["u"])


class Slices:
    """An array that computes what it is asked for, and notes how much that is."""

    def __init__(self, shape):
        self.shape, self.dtype, self.largest = shape, np.dtype("float64"), 0

    def __getitem__(self, key):
        z, y, x = np.ogrid[key]
        made = z + 0.5 * y + 0.25 * x
        self.largest = max(self.largest, made.nbytes)
        return made


def test_an_array_is_read_in_slices_that_are_small_beside_the_limit(tmp_path):
    array = Slices((64, 512, 512))
    posed = problem(array, array.shape, steps=0)
    assert array.largest == 0
    found = og.run(posed, memory="192 MiB", tier="direct", out=tmp_path / "r")
    assert 0 < array.largest <= 8 << 20
    np.testing.assert_array_equal(found["u"][7], array[7:8, 0:512, 0:512][0])


MASKED = VALUES.copy()
MASKED[7, 8, 9] = -9999.0
MASKED = np.ma.masked_equal(MASKED, -9999.0)


def masked(folder):
    return MASKED


def masked_and_mapped(folder):
    return np.ma.array(mapped(folder), mask=MASKED.mask)


def masked_by_dask(folder):
    dask = pytest.importorskip("dask.array")
    return dask.ma.masked_equal(dask.from_array(MASKED.data, chunks=(6, 10, 32)), -9999.0)


def masked_slices(folder):
    """As a variable of netCDF4 gives them."""
    array = Slices(SHAPE)
    array.__class__ = type("Variable", (Slices,), {"__getitem__": lambda _, key: MASKED[key]})
    return array


@pytest.mark.parametrize("make", [masked, masked_and_mapped, masked_by_dask, masked_slices])
def test_masked_cells_have_no_value(make, tmp_path):
    with pytest.raises((DefinitionError, StoreError), match=r"no value at cell \(7, 8, 9\).*fill"):
        og.run(problem(make(tmp_path)), memory="400 MiB", out=tmp_path / "r")
    assert not (tmp_path / "r" / "u.npy").exists()


def test_a_mask_without_masked_cells_is_none(tmp_path):
    array = np.ma.array(VALUES, mask=False)
    assert problem(array) == problem(VALUES)


def test_masked_cells_of_lines_and_of_functions_have_no_value():
    dask = pytest.importorskip("dask.array")
    line = np.ma.masked_less(np.arange(8.0), 3)
    stencil = og.stencil(lambda u, *, k: u + k * (u[-1] - 2 * u + u[1]))
    for initial in (line, dask.ma.masked_less(dask.arange(8.0), 3), lambda x: line[: x.size]):
        with pytest.raises(DefinitionError, match=r"masked.*fill"):
            og.Problem(stencil, (8,), steps=1, parameters={"k": 0.1}, initial={"u": initial})


def test_coefficients_are_arrays_as_well(tmp_path):
    dask = pytest.importorskip("dask.array")
    speed = dask.full(SHAPE, 0.1, chunks=8)
    posed = og.Problem("wave:2", SHAPE, steps=3, initial={"u": VALUES, "c": speed})
    plain = og.Problem("wave:2", SHAPE, steps=3, initial={"u": VALUES, "c": 0.1})
    one = og.run(posed, memory="400 MiB", out=tmp_path / "one")
    other = og.run(plain, memory="400 MiB", out=tmp_path / "other")
    np.testing.assert_array_equal(one["u"], other["u"])


def test_an_array_that_changes_before_the_run_is_refused(tmp_path):
    array = VALUES.copy()
    posed = problem(array)
    array[3, 4, 5] += 1
    with pytest.raises(UsageError, match="'u' changed after the problem was made"):
        og.run(posed, memory="256 MiB", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_arrays_beyond_the_limit_are_refused_with_figures():
    array = np.broadcast_to(np.zeros((1, 1, 512)), (64, 1024, 512)).view()
    with pytest.raises(InfeasiblePlan, match=r"256 MiB of that are the initial arrays; as files"):
        og.plan(problem(array, array.shape), memory="128 MiB")


def test_what_an_array_raises_is_told(tmp_path):
    dask = pytest.importorskip("dask.array")

    def broken(block):
        raise OSError("the tape is torn")

    array = dask.zeros(SHAPE, chunks=10).map_blocks(broken, dtype="f8", meta=np.empty((0, 0, 0)))
    with pytest.raises(StoreError, match=r"dask\.Array cannot be read: the tape is torn"):
        og.run(problem(array), memory="400 MiB", out=tmp_path / "r")
    assert not (tmp_path / "r" / "u.npy").exists()


def test_chunks_larger_than_the_window_are_refused(tmp_path):
    dask = pytest.importorskip("dask.array")
    array = dask.zeros((64, 1024, 1024), chunks=(64, 1024, 512))
    posed = problem(array, array.shape)
    with pytest.raises(InfeasiblePlan, match=r"pieces of 512 MiB"):
        og.run(posed, memory="300 MiB", tier="direct", out=tmp_path / "r")


def described(shift=0.0, order=("depth", "north", "east"), **coordinates):
    xarray = pytest.importorskip("xarray")
    axes = {name: axis.values(n) for axis, n, name in zip(GRID.axes(3), SHAPE, order, strict=True)}
    axes["east"] = axes["east"] + shift
    found = xarray.DataArray(VALUES, dims=order, coords=axes | coordinates)
    found.attrs |= {"units": "K", "long_name": "temperature", "history": "long"}
    found["depth"].attrs["units"] = "m"
    return found


def test_a_grid_is_that_of_the_coordinates_where_none_is_given(tmp_path):
    posed = problem(described())
    assert posed.grid.names == GRID.names
    assert posed.grid.spacing == GRID.spacing
    assert posed.grid.origin == GRID.origin
    assert posed.grid.units == ("m", "", "")
    assert posed.grid.fields == {"u": {"units": "K", "long_name": "temperature"}}
    assert og.Problem.from_dict(posed.to_dict()) == posed
    assert posed.replace(steps=1).grid == posed.grid
    found = og.run(posed, memory="400 MiB", out=tmp_path / "r").to_xarray()
    np.testing.assert_array_equal(found["u"]["east"], described()["east"])


def test_coordinates_may_differ_from_those_of_the_grid_by_rounding():
    array = described()
    array = array.assign_coords(east=array["east"].astype("float32"))
    assert problem(array, grid=GRID).grid.names == GRID.names


LEFT_OUT = {"grid": None}


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (lambda a: a.assign_coords(east=a["east"] + 0.5), {}, ["east", "-0.5", "-1", "drop_vars"]),
        (lambda a: a.transpose("east", "north", "depth"), {}, ["axes east, north, depth",
            ".transpose('depth', 'north', 'east')", "1680 rows of 160 B"]),
        (lambda a: a.isel(depth=slice(5)), {}, ["(5, 24, 70) of depth, north, east"]),
        (lambda a: a.expand_dims("time"), {}, ["(1, 20, 24, 70)", ".isel(time=0)"]),
        (lambda a: a.isel(north=slice(None, None, -1)), LEFT_OUT, ["north", "fall from 115",
            ".isel(north=slice(None, None, -1))"]),
        (lambda a: a.assign_coords(north=a["north"] ** 2), LEFT_OUT, ["north", "evenly"]),
        (lambda a: a.assign_coords(north=a["north"].values.astype("M8[s]")), LEFT_OUT,
            ["north", "datetime64", "drop_vars"]),
        (lambda a: a.astype("complex64"), {}, ["complex64", "real"]),
        (lambda a: a.rename(depth="x", east="z"), LEFT_OUT, ["axes x, north, z", "z, y, x"]),
    ],
)  # fmt: skip
def test_what_does_not_lie_on_the_grid_is_refused(make, given, words):
    with pytest.raises(DefinitionError) as caught:
        problem(make(described()), **({"grid": GRID} | given))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_field_of_a_staggered_grid_lies_half_a_cell_further(tmp_path):
    xarray = pytest.importorskip("xarray")
    said = {"u": {"offset": (0, -0.5, 0.5), "units": "m s-1"}}
    grid = og.Grid(spacing=GRID.spacing, origin=GRID.origin, names=GRID.names, fields=said)
    array = described(1.25)
    array = array.assign_coords(north=array["north"] - 2.5)
    posed = problem(array, grid=grid, snapshots=[og.Snapshot("u", every=2, z=3)])
    assert og.Problem.from_dict(posed.to_dict()) == posed
    with pytest.raises(DefinitionError, match=re.escape("north_left = -2.5 + 5 k")):
        problem(described(), grid=grid)
    result = og.run(posed, memory="400 MiB", out=tmp_path / "r")
    og.export(result, tmp_path / "u.nc", fields=["u", "snapshot.0"])
    with xarray.open_dataset(tmp_path / "u.nc", engine="h5netcdf") as written:
        for found in (result.to_xarray(), written):
            assert found["u"].dims == ("depth", "north_left", "east_right")
            assert found["snapshot.0"].dims == ("step", "north_left", "east_right")
            np.testing.assert_array_equal(found["east_right"], 0.25 + 2.5 * np.arange(70))
            np.testing.assert_array_equal(found["north_left"], -2.5 + 5.0 * np.arange(24))
            assert found["east_right"].attrs["c_grid_axis_shift"] == 0.5
            assert found["u"].attrs["units"] == "m s-1"
            assert "offset" not in found["u"].attrs


@pytest.mark.parametrize("offset", [0.5, (0.5, 0.5), (0, 0, 0.25), "xyz", (0, 0, "a")])
def test_an_offset_is_half_a_cell_along_each_axis(offset):
    with pytest.raises(DefinitionError, match="the offset"):
        problem(0.0, grid=og.Grid(fields={"u": {"offset": offset}}))


def test_dask_takes_fields_that_lie_in_one_file_or_in_pieces(tmp_path):
    dask = pytest.importorskip("dask.array")
    dask_config = pytest.importorskip("dask.config")
    whole = og.run(problem(VALUES), memory="400 MiB", out=tmp_path / "r")
    pieces = Joined(
        [Piece(whole.path("u"), (0, 0), range(low, low + 10), range(24)) for low in (0, 10)]
    )
    for field in (whole["u"], pieces):
        for chunks in ("auto", (7, 24, 70)):
            found = dask.from_array(field, chunks=chunks)
            np.testing.assert_array_equal(
                found[3:17:2, ::-1, 5].compute(), whole["u"][3:17:2, ::-1, 5]
            )
            assert found.dtype == field.dtype
    given = problem(0.0, (64, 256, 256), dtype="float32")
    large = og.run(given, memory="400 MiB", out=tmp_path / "large")
    assert large["u"].chunks == (4, 256, 256)
    assert large["u"][3].chunks == (256, 256)
    with dask_config.set({"array.chunk-size": "4MiB"}):
        assert dask.from_array(large["u"]).chunks == ((16,) * 4, (256,), (256,))
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(large.out, engine="outgrid", chunks={}) as opened:
        assert opened["u"].chunks == ((4,) * 16, (256,), (256,))
