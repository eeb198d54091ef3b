"""Names and coordinates of axes in files, compared with those of the grid."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import UsageError
from outgrid.execute.inputs import check_inputs

xarray = pytest.importorskip("xarray")

SHAPE = (8, 8, 8)
VALUES = np.random.default_rng(4).standard_normal(SHAPE)
NAMES = ("depth", "north", "east")
GRID = og.Grid(spacing=(10, 5, 2.5), origin=(100, 0, -1), names=NAMES)


def array(order=NAMES):
    cells = np.arange(8)
    lie = dict(zip(NAMES, (100 + 10 * cells, 5.0 * cells, 2.5 * cells - 1), strict=True))
    return xarray.DataArray(VALUES, dims=NAMES, coords=lie, name="u").transpose(*order)


def by_netcdf4(folder, given):
    given.to_netcdf(folder / "m.nc", engine="h5netcdf")
    return f"{folder}/m.nc:u"


def by_netcdf3(folder, given):
    given.to_netcdf(folder / "m.nc", engine="scipy")
    return f"{folder}/m.nc:u"


def by_zarr(folder, given):
    given.to_dataset().to_zarr(folder / "m.zarr", consolidated=False)
    return f"{folder}/m.zarr:u"


def check(file, grid=GRID, **said):
    given = og.InputFile(file, **said)
    problem = og.Problem("heat7", SHAPE, steps=1, initial={"u": given}, grid=grid)
    check_inputs(problem)
    return problem


@pytest.mark.parametrize("write", [by_netcdf4, by_netcdf3, by_zarr])
def test_coordinates_are_those_of_the_grid_or_refused(tmp_path, write):
    file = write(tmp_path, array())
    check(file)
    check(file, grid=None)
    elsewhere = og.Grid(spacing=(10, 5, 2.5), origin=(100, 0, 0), names=GRID.names)
    with pytest.raises(UsageError, match=r"east of .*m\..*u is -1 at index 0, that of the grid 0"):
        check(file, elsewhere)
    check(file, elsewhere, coordinates=False)
    staggered = {"u": {"offset": (0, 0, 0.5)}}
    origin = (100, 0, -2.25)
    check(file, og.Grid(GRID.spacing, origin, names=GRID.names, fields=staggered))


@pytest.mark.parametrize("write", [by_netcdf4, by_netcdf3, by_zarr])
def test_axes_in_another_order_are_turned_only_when_told(tmp_path, write):
    file = write(tmp_path, array(("east", "depth", "north")))
    with pytest.raises(UsageError, match=r"transpose=\(1, 2, 0\).* 64 rows one by one"):
        check(file)
    problem = check(file, transpose=(1, 2, 0)).replace(steps=0)
    found = og.run(problem, memory="256 MiB", out=tmp_path / "r")
    np.testing.assert_array_equal(found["u"], VALUES)


def test_what_is_brought_onto_the_grid_has_to_end_where_it_ends(tmp_path):
    file = by_netcdf4(tmp_path, array())
    finer = og.Grid(spacing=(10, 5, 1.25), origin=(100, 0, -1), names=GRID.names)
    onto = og.InputFile(file, interp="linear")
    problem = og.Problem("heat7", (8, 8, 15), steps=0, initial={"u": onto}, grid=finer)
    found = og.run(problem, memory="256 MiB", out=tmp_path / "r")
    np.testing.assert_array_equal(found["u"][..., ::2], VALUES)
    longer = og.Problem("heat7", (8, 8, 16), steps=0, initial={"u": onto}, grid=finer)
    with pytest.raises(UsageError, match="the coordinate east"):
        check_inputs(longer)


@pytest.mark.parametrize(
    ("values", "even"),
    [
        ((2450000.0 + 0.25 * np.arange(8)), True),
        ((2450000.0 + 0.25 * np.arange(8)).astype("f4"), True),
        (2450000.0 + np.array([0, 1, 2, 3, 4, 5, 6, 8]), False),
        (5e6 + np.geomspace(1, 2, 8), False),
        (3.0 - np.arange(8), True),
        (-3.0 + np.arange(8) ** 2, False),
        (np.full(8, 3.0), False),
    ],
)
def test_only_even_coordinates_go_with_a_file_and_others_are_told(tmp_path, values, even):
    lie = dict(zip(NAMES, (values, np.arange(8), np.arange(8)), strict=True))
    file = by_netcdf4(tmp_path, xarray.DataArray(VALUES, dims=NAMES, coords=lie, name="u"))
    found = og.convert(og.InputFile(file), tmp_path / "again.nc")
    assert found.notes == () if even else "coordinates depth are not even" in found.notes[0]
    with xarray.open_dataset(tmp_path / "again.nc", engine="h5netcdf") as again:
        wanted = values if even else np.arange(8)
        np.testing.assert_allclose(again["depth"], wanted, rtol=1e-15 if values.itemsize > 4 else 0)


def test_a_coordinate_of_one_cell_goes_with_a_file(tmp_path):
    given = xarray.DataArray(VALUES[:1], dims=NAMES, coords={"depth": [7.5]}, name="u")
    og.convert(og.InputFile(by_netcdf4(tmp_path, given)), tmp_path / "again.nc")
    with xarray.open_dataset(tmp_path / "again.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again["depth"], [7.5])


def test_coordinates_go_with_a_file_that_is_converted(tmp_path):
    file = by_zarr(tmp_path, array())
    og.convert(og.InputFile(file), tmp_path / "again.nc")
    with xarray.open_dataset(tmp_path / "again.nc", engine="h5netcdf") as found:
        np.testing.assert_allclose(found["east"], -1 + 2.5 * np.arange(8))
        np.testing.assert_array_equal(found["u"], VALUES)
