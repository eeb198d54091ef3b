"""Traces of receivers leave as SEG-Y, as NetCDF and in datasets, with places and times."""

import json
import subprocess
import sys

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError, UsageError

SHAPE = (20, 24, 30)
DT = 0.002
PLACES = [(4, 6, 5.5), (4, 6, 10), (4, 12, 20.25)]


def shot(folder, dt=DT, **given):
    grid = og.Grid(
        spacing=(5.0, 10.0, 12.5),
        origin=(0.0, 1000.0, 2e5),
        units="m",
        names=("depth", "north", "east"),
        dt=dt,
    )
    given = {"sources": [og.Source("u", (8, 10, 12), "sin(step / 5)")]} | given
    problem = og.Problem(
        "wave:2",
        SHAPE,
        steps=40,
        initial={"u": 0.0, "c": 0.2},
        receivers=[og.Receiver("u", place) for place in PLACES],
        snapshots=[og.Snapshot("u", every=10, y=10)],
        grid=grid,
        **given,
    )
    return og.run(problem, memory="400 MiB", out=folder / "shot.run")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return shot(tmp_path_factory.mktemp("run"))


def test_traces_leave_as_segy_with_headers(result, tmp_path):
    segyio = pytest.importorskip("segyio")
    og.export(result, tmp_path / "shot.segy", fields=["traces"], memory_bytes=1 << 20)
    with segyio.open(str(tmp_path / "shot.segy"), ignore_geometry=True) as file:
        np.testing.assert_array_equal(file.trace.raw[:], result.traces.T.astype("f4"))
        assert segyio.tools.dt(file) == 2000.0
        assert file.bin[segyio.BinField.Format] == 5
        scale = 1 / -file.header[0][segyio.TraceField.SourceGroupScalar]
        for number, (z, y, x) in enumerate(PLACES):
            header = file.header[number]
            assert header[segyio.TraceField.GroupX] * scale == pytest.approx(2e5 + 12.5 * x)
            assert header[segyio.TraceField.GroupY] * scale == pytest.approx(1000 + 10 * y)
            assert header[segyio.TraceField.ReceiverGroupElevation] * scale == pytest.approx(-5 * z)
            assert header[segyio.TraceField.SourceX] * scale == pytest.approx(2e5 + 12.5 * 12)
            assert header[segyio.TraceField.SourceY] * scale == pytest.approx(1100)
            assert header[segyio.TraceField.SourceDepth] * scale == pytest.approx(40)
            assert header[segyio.TraceField.TRACE_SAMPLE_INTERVAL] == 2000
            assert header[segyio.TraceField.TRACE_SAMPLE_COUNT] == 40
            assert header[segyio.TraceField.DelayRecordingTime] == 2
            apart = np.hypot(12.5 * (x - 12), 10 * (y - 10))
            assert header[segyio.TraceField.offset] == round(apart)


def test_traces_are_read_again_as_initial_values(result, tmp_path):
    pytest.importorskip("segyio")
    og.export(result, tmp_path / "shot.sgy", fields=["traces"])
    og.convert(og.InputFile(str(tmp_path / "shot.sgy")), tmp_path / "t.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), result.traces.T.astype("f4"))


@pytest.mark.parametrize("how", ["dataset", "netcdf", "zarr"])
def test_traces_have_coordinates(result, tmp_path, how):
    xarray = pytest.importorskip("xarray")
    if how == "dataset":
        found = result.to_xarray()
    else:
        pytest.importorskip("zarr")
        name, engine = {"netcdf": ("shot.nc", "h5netcdf"), "zarr": ("shot.zarr", "zarr")}[how]
        more = {"consolidated": False} if how == "zarr" else {}
        og.export(result, tmp_path / name, fields=["u", "snapshot.0", "traces"])
        found = xarray.open_dataset(tmp_path / name, engine=engine, **more)
        assert found.attrs["Conventions"] == "CF-1.8"
        np.testing.assert_array_equal(found["depth"], 5.0 * np.arange(20))
        assert found["depth"].attrs["units"] == "m"
    traces = found["traces"]
    assert traces.dims == ("receiver", "time_traces")  # beside that of snapshots
    np.testing.assert_array_equal(traces, result.traces.T)
    np.testing.assert_allclose(traces["time_traces"], DT * np.arange(1, 41), rtol=1e-12)
    assert traces["time_traces"].attrs["units"] == "s"
    assert set(traces.coords) >= {"receiver_depth", "receiver_north", "receiver_east"}
    np.testing.assert_allclose(traces["receiver_east"], [2e5 + 12.5 * x for _, _, x in PLACES])
    assert traces["receiver_east"].attrs["units"] == "m"
    frames = found["snapshot.0"]
    np.testing.assert_allclose(frames["time"], DT * np.array([10, 20, 30, 40]))
    found.close()


def test_a_receiver_of_a_staggered_field_lies_half_a_cell_further(tmp_path):
    pytest.importorskip("xarray")

    @og.stencil
    def duct(p, u, *, s):
        return [{"u": u - s * (p[0, 1] - p)}, {"p": p - s * (u - u[0, -1])}]

    problem = og.Problem(
        duct,
        (8, 9),
        steps=2,
        parameters={"s": 0.5},
        initial={"p": 1.0, "u": 0.0},
        receivers=[og.Receiver("p", (4, 4)), og.Receiver("u", (4, 4))],
        grid=og.Grid(spacing=2.0, fields={"u": {"offset": (0, 0.5)}}),
    )
    found = og.run(problem, memory="256 MiB", out=tmp_path / "r").to_xarray()
    assert list(found["receiver_x"]) == [8.0, 9.0]
    assert list(found["receiver_y"]) == [8.0, 8.0]
    assert list(found["traces"]["step"]) == [1, 2]


def test_the_time_of_a_step_may_be_told_in_the_end(tmp_path):
    segyio = pytest.importorskip("segyio")
    result = shot(tmp_path, 0.0)
    assert result.to_xarray()["traces"].dims == ("receiver", "step_traces")
    with pytest.raises(UsageError, match=r"--dt 0\.002"):
        og.export(result, tmp_path / "shot.segy", fields=["traces"])
    words = ("export", result.out, "--to", tmp_path / "shot.segy", "--fields", "traces")
    done = subprocess.run(
        [sys.executable, "-m", "outgrid", *map(str, words), "--dt", "0.004", "--json"],
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["arrays"] == ["traces"], done.stderr
    with segyio.open(str(tmp_path / "shot.segy"), ignore_geometry=True) as file:
        assert segyio.tools.dt(file) == 4000.0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"fields": ["u"]}, ["--field traces"]),
        ({"fields": ["snapshot.0"]}, ["--field traces"]),
        ({"dt": 1.5e-6}, ["1.5", "whole microseconds"]),
        ({"dt": 0.5}, ["500000", "1 to 32767"]),
        ({"dt": -1.0}, ["dt must be", "not -1.0"]),
        ({"chunks": 4}, ["chunks"]),
    ],
)
def test_what_segy_cannot_hold_is_refused(result, tmp_path, how, words):
    pytest.importorskip("segyio")
    with pytest.raises(UsageError) as caught:
        og.export(result, tmp_path / "shot.segy", **({"fields": ["traces"]} | how))
    assert all(word in str(caught.value) for word in words), caught.value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dt", [-1.0, float("nan"), "fast"])
def test_a_grid_has_a_time_of_a_step_or_none(dt):
    with pytest.raises(DefinitionError, match="dt"):
        og.Problem(
            "heat5", (8, 8), steps=1, parameters={"k": 0.1}, initial={"u": 0.0}, grid=og.Grid(dt=dt)
        )
