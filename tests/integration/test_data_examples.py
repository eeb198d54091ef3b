"""Examples from the formats of users to theirs: run, compared, and drawn."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import outgrid as og

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])
    monkeypatch.setenv("MPLBACKEND", "agg")


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    return np.ptp(pyplot.imread(path)[..., :3]) > 0.5


def test_a_velocity_model_in_netcdf_becomes_a_shot_record(tmp_path):
    pytest.importorskip("dask.array")
    shot = example("shot_record")
    shot.write_model(tmp_path / "vp.nc")
    result = og.run(shot.problem(tmp_path / "vp.nc"), memory="512 MiB", out=tmp_path / "r")
    record = result.to_xarray()["traces"].load()
    assert record["receiver_distance"].attrs["units"] == "m"
    found, wanted = shot.echo(record)
    np.testing.assert_allclose(found, wanted, atol=0.004)
    shot.draw(record, tmp_path / "record.png")
    assert drawn(tmp_path / "record.png")


def test_a_tiff_becomes_a_pyramid_of_ome_zarr(tmp_path):
    zarr, edge = pytest.importorskip("zarr"), 80
    pytest.importorskip("tifffile")
    smooth = example("smooth_tiff")
    smooth.write_volume(tmp_path / "v.tif", edge)
    problem = smooth.problem(tmp_path / "v.tif", edge)
    result = og.run(problem, memory="300 MiB", out=tmp_path / "r")
    smooth.leave(result, tmp_path / "v.zarr")
    group = zarr.open(tmp_path / "v.zarr", mode="r")["u"]
    assert group.attrs["ome"]["version"] == "0.5"
    np.testing.assert_array_equal(group["0"][...], result["u"])
    assert group["1"].shape == (edge // 2,) * 3
    before, after = (
        np.std(values - smooth.volume(edge))
        for values in (pytest.importorskip("tifffile").imread(tmp_path / "v.tif"), result["u"])
    )
    assert before == pytest.approx(smooth.NOISE, rel=0.02)
    assert after < before / 6
    smooth.draw(tmp_path / "v.tif", tmp_path / "v.zarr", tmp_path / "v.png")
    assert drawn(tmp_path / "v.png")


def test_a_geotiff_becomes_a_wave_in_netcdf(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("tifffile")
    sea = example("geotiff_wave")
    sea.write_floor(tmp_path / "floor.tif")
    floor = sea.open_floor(tmp_path / "floor.tif")
    result = og.run(sea.problem(tmp_path / "floor.tif"), memory="300 MiB", out=tmp_path / "r")
    og.export(result, tmp_path / "wave.nc", fields=[*result, "snapshot.0"])
    with xarray.open_dataset(tmp_path / "wave.nc", engine="h5netcdf") as found:
        np.testing.assert_allclose(found["longitude"], floor["longitude"], rtol=1e-9)
        np.testing.assert_allclose(found["latitude"], floor["latitude"], rtol=1e-9)
        assert found["longitude"].attrs["units"] == "degrees_east"
        assert found["snapshot.0"].dims == ("time", "latitude", "longitude")
        frames = found["snapshot.0"].values
    assert np.isfinite(frames).all()
    deep = floor.values < -100
    height = abs(frames[-1] - sea.REST)[deep].max()
    assert 0.01 < height < 2
    sea.draw(tmp_path / "floor.tif", tmp_path / "wave.nc", tmp_path / "wave.png")
    assert drawn(tmp_path / "wave.png")
