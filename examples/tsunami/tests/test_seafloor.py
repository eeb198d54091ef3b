import numpy as np
import pytest

from seafloor import Region, SeaFloor, load_sea_floor, write_depth

# Heights that cubic convolution reproduces exactly: at most quadratic in each direction.
LATITUDES = np.linspace(48.0, 50.0, 9)
LONGITUDES = np.linspace(234.0, 238.0, 11)


def quadratic(latitudes, longitudes):
    y, x = np.asarray(latitudes)[:, None] - 49, np.asarray(longitudes)[None, :] - 236
    return 10 * y * y - 7 * x * x + 3 * x * y - 20 * y + 5


FLOOR = SeaFloor(quadratic(LATITUDES, LONGITUDES), LATITUDES, LONGITUDES)
REGION = Region(west=235.0, east=237.0, south=48.7, rows=60, columns=80)


def test_cells_are_square_and_row_0_is_the_northernmost():
    rows, columns = np.arange(REGION.rows), np.arange(REGION.columns)
    latitudes = REGION.latitudes(rows)
    assert latitudes[-1] > REGION.south
    np.testing.assert_allclose(-np.diff(latitudes) * 111_195.0, REGION.cell_metres)
    width = np.diff(REGION.longitudes(columns)) * 111_195.0 * np.cos(np.radians(REGION.south))
    np.testing.assert_allclose(width, REGION.cell_metres)


def test_quadratic_heights_are_reproduced_inside():
    rows, columns = np.arange(10.0, 50.0), np.arange(5.0, 75.0)
    found = FLOOR.sample(REGION, rows, columns)
    wanted = quadratic(REGION.latitudes(rows), REGION.longitudes(columns))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_beyond_the_data_the_last_value_goes_on():
    region = Region(west=230.0, east=231.0, south=45.0, rows=3, columns=4)
    found = FLOOR.sample(region, np.arange(3.0), np.arange(4.0))
    np.testing.assert_allclose(found, FLOOR.heights[0, 0], rtol=1e-6)


def test_depth_is_written_in_strips_and_is_0_on_land(tmp_path, monkeypatch):
    monkeypatch.setattr("seafloor.STRIP_BYTES", 7 * 4 * REGION.columns)
    deepest = write_depth(FLOOR, REGION, tmp_path / "h.npy")
    depth = np.load(tmp_path / "h.npy")
    heights = FLOOR.sample(REGION, np.arange(60.0), np.arange(80.0))
    assert depth.dtype == np.float32
    np.testing.assert_allclose(depth, np.maximum(-heights, 0), atol=2e-5)
    assert depth.min() == 0
    assert deepest == depth.max()


def test_the_real_sea_floor_has_land_and_sea():
    floor = load_sea_floor()
    assert floor.heights.shape == (floor.latitudes.size, floor.longitudes.size) == (91, 120)
    assert floor.heights.min() < -1000 < 1000 < floor.heights.max()


@pytest.mark.parametrize("name", ["topo", "nothing"])
def test_without_the_data_the_reason_is_told(monkeypatch, tmp_path, name):
    from importlib.machinery import ModuleSpec

    from outgrid.errors import UsageError

    spec = None if name == "nothing" else ModuleSpec("matplotlib", None, origin=f"{tmp_path}/m.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda module: spec)
    with pytest.raises(UsageError, match="matplotlib"):
        load_sea_floor()
