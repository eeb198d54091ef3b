"""From TIFF to OME-Zarr: a volume smoothed by Perona and Malik's diffusion, left as a pyramid.

The volume is a TIFF file, of any size, that is read and written a few planes at a time. Viewers of
OME-Zarr open what is left; `outgrid serve volume.zarr` prints a link.

Checked: what the result differs from the volume without noise, edges included, is 1/6 of the noise.
"""

from pathlib import Path

import numpy as np
from perona_malik import perona_malik

import outgrid as og

EDGE = 96
NOISE = 6.0
BALLS = (
    (0.35, 0.4, 0.3, 0.22, 160.0),
    (0.6, 0.62, 0.68, 0.26, 220.0),
    (0.7, 0.25, 0.6, 0.14, 90.0),
)


def volume(edge=EDGE):
    """Balls of some brightness on a dark ground, as (z, y, x)."""
    z, y, x = np.ogrid[:edge, :edge, :edge]
    values = np.full((edge,) * 3, 20.0, "f4")
    for a, b, c, radius, bright in BALLS:
        inside = (z / edge - a) ** 2 + (y / edge - b) ** 2 + (x / edge - c) ** 2 < radius**2
        values[inside] = bright
    return values


def write_volume(path, edge=EDGE):
    """The volume with noise, as a TIFF file whose pages are planes."""
    import tifffile

    noise = np.random.default_rng(1).normal(0, NOISE, (edge,) * 3)
    tifffile.imwrite(path, (volume(edge) + noise).astype("f4"), photometric="minisblack")


def problem(path, edge=EDGE, steps=20):
    """No brightness leaves through the faces."""
    return og.Problem(
        perona_malik,
        (edge,) * 3,
        "float32",
        steps,
        {"k": 3 * NOISE},
        "neumann",
        {"u": path},
        grid=og.Grid(spacing=0.5, units="micrometer"),
    )


def leave(result, path):
    """A pyramid of three levels or so, in chunks of 32 cells."""
    return og.export(result, path, chunks=32, codec="zstd:1", levels=True, overwrite=True)


def draw(tiff, pyramid, path):
    """The middle plane before, after, and at the next level."""
    import tifffile
    import zarr
    from matplotlib import pyplot

    group = zarr.open(pyramid, mode="r")["u"]
    before = tifffile.imread(tiff)
    shown = {"TIFF": before, "OME-Zarr, level 0": group["0"], "level 1": group["1"]}
    figure, every = pyplot.subplots(1, 3, figsize=(8, 3), layout="constrained")
    for axes, (name, values) in zip(every, shown.items(), strict=True):
        axes.imshow(values[values.shape[0] // 2], cmap="gray", vmin=0, vmax=255)
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(__doc__, size={"type": int, "default": EDGE, "help": "cells along each axis"})
    tiff, pyramid = Path("volume.tif"), Path("volume.zarr")
    write_volume(tiff, given.size)
    result = run(problem(tiff, given.size), given)
    left = np.std(result["u"] - volume(given.size))
    print(f"{leave(result, pyramid)}; noise {NOISE} before, {left:.2f} after")
    if given.picture:
        draw(tiff, pyramid, given.picture)
