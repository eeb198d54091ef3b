"""From NetCDF to a shot record: sound in a velocity model with coordinates, drawn by xarray.

The model is a NetCDF file of velocities over depth and distance: two layers, the lower one
faster. It is opened by xarray and never read whole; its coordinates are those of the run and of the
record.

Checked: the echo of the flat layer arrives at sqrt(t0^2 + (x/v)^2), t0 = 2 depth / v, within 4 ms.
"""

import math
from pathlib import Path

import numpy as np

import outgrid as og

SHAPE = (160, 300)  # cells of depth and distance
SPACING = 5.0  # metres
UPPER, LOWER, INTERFACE = 1500.0, 2500.0, 400.0  # m/s, m/s, m
DT = 0.001  # seconds
STEPS = 900
FREQUENCY = 20.0  # of the pulse, Hz
LAYER = 20
SHOT = (30, 60)
DELAY = 1.5 / FREQUENCY


def write_model(path, shape=SHAPE):
    """A velocity model as NetCDF."""
    import xarray as xr

    depth, distance = (SPACING * np.arange(extent) for extent in shape)
    speed = np.where(depth < INTERFACE, UPPER, LOWER).astype("f4")
    found = xr.DataArray(
        np.repeat(speed[:, None], shape[1], axis=1),
        dims=("depth", "distance"),
        coords={"depth": ("depth", depth, {"units": "m"}),
                "distance": ("distance", distance, {"units": "m"})},
        attrs={"units": "m s-1", "long_name": "velocity"},
    )  # fmt: skip
    found.to_dataset(name="vp").to_netcdf(path, engine="h5netcdf")


def pulse(steps=STEPS):
    """A Ricker wavelet."""
    phase = (math.pi * FREQUENCY * (DT * np.arange(steps) - DELAY)) ** 2
    return (1 - 2 * phase) * np.exp(-phase)


def problem(path, steps=STEPS):
    """The shot; a step is a millisecond."""
    import xarray as xr

    speed = xr.open_dataset(path, engine="h5netcdf", chunks={"depth": 32})["vp"]
    layers = og.matched_layers(
        speed.shape, LAYER, courant=LOWER * DT / SPACING, frequency=FREQUENCY * DT
    )
    ears = range(LAYER + 10, speed.shape[1] - LAYER - 10, 4)
    grid = og.Grid(
        spacing=SPACING, units="m", names=speed.dims, dt=DT,
        fields={"p": {"units": "Pa", "long_name": "pressure"}},
    )  # fmt: skip
    return og.Problem(
        "acoustic_pml:4",
        speed.shape,
        "float32",
        steps,
        layers,
        initial={"p": 0.0, "slope": 0.0, "bend": 0.0, "c": (speed * (DT / SPACING)) ** 2},
        sources=[og.Source("p", SHOT, pulse(steps))],
        receivers=[og.Receiver("p", (SHOT[0], ear)) for ear in ears],
        grid=grid,
    )


def echo(record):
    """When the echo arrives, and when it should, at receivers up to 300 m from the shot."""
    apart = record["receiver_distance"].values - SPACING * SHOT[1]
    wanted = np.hypot(2 * (INTERFACE - SPACING * SHOT[0]) / UPPER, apart / UPPER)
    near = np.flatnonzero(abs(apart) < 300)
    found = []
    for trace, time in zip(record.values[near], wanted[near], strict=True):
        window = abs(record["time"].values - time - DELAY) < 0.05
        at = np.argmax(np.where(window, abs(trace), 0))
        found.append(record["time"].values[at] - DELAY)
    return np.array(found), wanted[near]


def draw(record, path):
    """The shot record, by xarray's own plot."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4.5), layout="constrained")
    record = record.swap_dims(receiver="receiver_distance").T.assign_attrs(long_name="pressure")
    record["receiver_distance"].attrs["long_name"] = "distance"
    record.plot(ax=axes, yincrease=False, robust=True, cmap="seismic")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(__doc__)
    model = Path("velocity.nc")
    write_model(model)
    record = run(problem(model), given).to_xarray()["traces"].load()
    found, wanted = echo(record)
    print(f"the echo is at most {1000 * abs(found - wanted).max():.1f} ms from where it should be")
    if given.picture:
        draw(record, given.picture)
