"""From a GeoTIFF to NetCDF: a wave on the sea floor of the Strait of Georgia, with coordinates.

Heights lie in a TIFF file that says where on Earth: tags of the scale and of the north-western
corner, rows from north to south. xarray has them with coordinates, which the run takes over, and
NetCDF keeps. The sea floor is the sample data that matplotlib ships.

Checked: coordinates of the result are those of the GeoTIFF; the equation is that of basin.py, which
is compared with exact modes.
"""

from pathlib import Path

import numpy as np

import outgrid as og

SCALE, CORNER = 33550, 33922  # tags of GeoTIFF: ModelPixelScale, ModelTiepoint
FINER = 4
METRES = 111_195.0  # of a degree of latitude
GRAVITY, STEPS = 9.81, 800
REST = 1.0  # the surface of the sea at rest


def write_floor(path):
    """Heights above the sea in metres, as a GeoTIFF, north up."""
    import matplotlib
    import tifffile

    sample = Path(matplotlib.__file__).parent / "mpl-data/sample_data/topobathy.npz"
    with np.load(sample, allow_pickle=False) as data:
        topo, north, east = data["topo"], data["latitude"], data["longitude"]
    rows, columns = (FINER * (n - 1) + 1 for n in topo.shape)
    down, across = np.linspace(0, len(north) - 1, rows), np.linspace(0, len(east) - 1, columns)
    topo = np.array([np.interp(across, np.arange(len(east)), row) for row in topo])
    topo = np.array([np.interp(down, np.arange(len(north)), column) for column in topo.T]).T
    scale = float(east[-1] - east[0]) / (columns - 1), float(north[-1] - north[0]) / (rows - 1)
    # The tie point is the corner of the first pixel, half a pixel from its middle.
    corner = float(east[0]) - scale[0] / 2, float(north[-1]) + scale[1] / 2
    tags = [
        (SCALE, "d", 3, (*scale, 0.0), True),
        (CORNER, "d", 6, (0.0, 0.0, 0.0, *corner, 0.0), True),
    ]
    tifffile.imwrite(path, topo[::-1].astype("f4"), photometric="minisblack", extratags=tags)


def open_floor(path):
    """The heights with coordinates, from south to north, mapped and not read."""
    import tifffile
    import xarray as xr

    with tifffile.TiffFile(path) as file:
        tags = file.pages[0].tags
        (dx, dy, _), (_, _, _, west, north, _) = (tags[tag].value for tag in (SCALE, CORNER))
    heights = tifffile.memmap(path, mode="r")
    rows, columns = heights.shape
    latitude = north - dy * (np.arange(rows) + 0.5)
    longitude = west + dx * (np.arange(columns) + 0.5)
    found = xr.DataArray(
        heights,
        dims=("latitude", "longitude"),
        coords={"latitude": ("latitude", latitude, {"units": "degrees_north"}),
                "longitude": ("longitude", longitude, {"units": "degrees_east"})},
    )  # fmt: skip
    return found.isel(latitude=slice(None, None, -1))


def problem(path, steps=STEPS):
    """A hump of two metres is let go in the deep of the strait."""
    floor = open_floor(path)
    depth = np.maximum(-floor, 0)
    depth.attrs |= {"units": "m", "long_name": "depth below the sea"}
    cell = float(floor["latitude"][1] - floor["latitude"][0]) * METRES
    dt = 0.4 * cell / float(np.sqrt(2 * GRAVITY * depth.max()))
    hump = "exp(-((latitude - 49.3) / 0.06)**2 - ((longitude - 236.2) / 0.09)**2)"
    sea = og.Problem(
        "shallow_water",
        floor.shape,
        "float32",
        steps,
        {"dt": dt, "dx": cell, "g": GRAVITY},
        "frozen",
        {"eta": 0.0, "h": depth},
    )
    said = sea.grid.to_dict() | {"dt": dt}
    said["fields"] |= {"eta": {"units": "m", "long_name": "height of the surface"}}
    return sea.replace(
        grid=said,
        initial={"eta": f"{REST} + 2 * {hump}", "h": depth},
        snapshots=[og.Snapshot("eta", every=steps // 4)],
    )


def draw(tiff, netcdf, path):
    """The surface at four times, over the sea alone, by xarray's own plot."""
    import xarray as xr
    from matplotlib import pyplot

    with xr.open_dataset(netcdf, engine="h5netcdf") as found:
        wet = open_floor(tiff).values < 0
        surface = (found["snapshot.0"] - REST).where(wet)
        surface = surface.sel(longitude=slice(235.3, 237.2), latitude=slice(48.85, 49.75))
        surface.attrs |= {"long_name": "height of the surface", "units": "m"}
        drawn = surface.plot(
            col="time", col_wrap=2, vmin=-0.8, vmax=0.8, cmap="RdBu_r", figsize=(8, 6)
        )
        for axes, seconds in zip(drawn.axs.flat, surface["time"].values, strict=True):
            axes.set(facecolor="0.75", title=f"after {seconds / 60:.0f} minutes")  # grey is land
        drawn.fig.savefig(path, dpi=80)
        pyplot.close(drawn.fig)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(__doc__)
    tiff, netcdf = Path("floor.tif"), Path("wave.nc")
    write_floor(tiff)
    result = run(problem(tiff), given)
    fields = [*result, "snapshot.0"]
    print(og.export(result, netcdf, fields=fields, overwrite=True))
    if given.picture:
        draw(tiff, netcdf, given.picture)
