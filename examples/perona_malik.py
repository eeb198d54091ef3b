"""Smoothing of a real MRI volume that keeps its edges: diffusion by P. Perona and J. Malik.

u_t = div(exp(-|grad u|^2 / (2 K^2)) grad u) (IEEE Trans. Pattern Anal. Mach. Intell. 12 (1990)
629), with the gradient at each face between two cells from the differences around it. K is a
multiple of the mean gradient of the volume that is given, as users of ITK are used to.

The volume is the MNI152 template, 197 x 233 x 189 cells of 1 mm, that the package nilearn ships
(`pip install --no-deps nilearn`, `pip install nibabel`).

Checked: the values are those of GradientAnisotropicDiffusion of SimpleITK (`pip install SimpleITK`)
but for rounding.
"""

import importlib.util
import math
from pathlib import Path

import numpy as np

import outgrid as og

TIME_STEP = 1 / 16
AXES = range(3)


@og.stencil(ndim=3)
def perona_malik(u, *, dt=TIME_STEP, k):
    """An explicit step; what flows through the six faces of a cell."""

    def at(*steps):
        """The value some steps away: axis 0 up is +1, down is -1, and so on."""
        offset = [0, 0, 0]
        for step in steps:
            offset[abs(step) - 1] += 1 if step > 0 else -1
        return u[tuple(offset)]

    factor = -0.5 / (k * k)
    flows = []
    for face in (1, -1, 2, -2, 3, -3):
        along = at(face) - u
        squared = along * along
        for side in {1, 2, 3} - {abs(face)}:
            across = 0.25 * ((at(side) - at(-side)) + (at(face, side) - at(face, -side)))
            squared = squared + across * across
        flows.append(og.exp(factor * squared) * along)
    return u + dt * ((flows[0] + flows[1]) + (flows[2] + flows[3]) + (flows[4] + flows[5]))


def template():
    """The path of the volume; FileNotFoundError says what to install."""
    found = importlib.util.find_spec("nilearn")
    name = "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
    if found is None or not (Path(found.origin).parent / name).exists():
        raise FileNotFoundError("the MNI152 template comes with nilearn: pip install nilearn")
    return Path(found.origin).parent / name


def volume():
    """Brightness from 0 to 255, axes from foot to head, back to front, left to right."""
    import nibabel

    return np.ascontiguousarray(np.asarray(nibabel.load(template()).dataobj, np.float64).T)


def finer(values, times, path):
    """Write the values with `times` as many cells along each axis, a plane at a time."""
    planes, rows, columns = (np.minimum(np.arange(n * times) / times, n - 1) for n in values.shape)
    down, across = (linear(at, n) for at, n in zip((rows, columns), values.shape[1:], strict=True))
    with path.open("wb") as file:
        shape = (len(planes), len(rows), len(columns))
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for plane in planes:
            low, high = int(plane), min(int(plane) + 1, len(values) - 1)
            here = values[low] + (plane - low) * (values[high] - values[low])
            file.write((down @ here @ across.T).astype(np.float32).tobytes())
    return shape


def refined(times, path):
    """What `finer` writes of the volume: its shape, and the mean gradient."""
    values = volume()
    return finer(values, times, path), mean_gradient(values) / times


def linear(places, count):
    """Matrix of linear interpolation from `count` values at 0, 1, 2... to `places`."""
    return np.maximum(0, 1 - abs(places[:, None] - np.arange(count)))


def mean_gradient(values):
    """The root of the mean of the squared gradient, by central differences."""
    padded = np.pad(values, 1, mode="edge")
    inside = (slice(1, -1),) * 3
    total = 0.0
    for axis in AXES:
        difference = (np.roll(padded, -1, axis) - np.roll(padded, 1, axis))[inside] / 2
        total += float(np.mean(difference**2))
    return math.sqrt(total)


def problem(values, steps=5, conductance=1.0, shape=None, dtype="float64", k=None):
    """No brightness leaves through the faces. `values` is an array, or a file of `shape`."""
    return og.Problem(
        perona_malik,
        shape or values.shape,
        dtype,
        steps,
        {"k": k or conductance * mean_gradient(values)},
        "neumann",
        {"u": values},
    )


def peer(values, steps=5, conductance=1.0):
    """The same by SimpleITK, the mean gradient taken once."""
    import SimpleITK

    image = SimpleITK.GetImageFromArray(values)
    smoothed = SimpleITK.GradientAnisotropicDiffusion(
        image, TIME_STEP, conductance, steps + 1, steps
    )
    return SimpleITK.GetArrayFromImage(smoothed)


def draw(before, after, path):
    """A slice before and after, and its gradient."""
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(6.4, 4), layout="constrained")
    for axes, values, name in zip(both, (before, after), ("before", "after"), strict=True):
        axes.imshow(values[len(values) // 2, 20:-20, 20:-20], origin="lower", cmap="gray")
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    from command import apart, arguments, run

    given = arguments(
        __doc__,
        finer={"type": int, "default": 1, "help": "cells along each axis for each one of the data"},
        steps={"type": int, "default": 5, "help": "time steps"},
        conductance={"type": float, "default": 1.0, "help": "K over the mean gradient"},
    )
    if given.finer > 1:
        start = Path("perona_malik.npy")
        shape, gradient = apart(refined, given.finer, start)
        k = given.conductance * gradient
        posed = problem(start, given.steps, shape=shape, dtype="float32", k=k)
    else:
        posed = problem(volume(), given.steps, given.conductance)
    result = run(posed, given)
    if given.finer == 1 and importlib.util.find_spec("SimpleITK"):
        difference = abs(result["u"] - peer(volume(), given.steps, given.conductance)).max()
        print(f"largest difference from SimpleITK {difference:.1e}, of values up to 255")
    if given.picture:
        every = slice(None, None, given.finer)
        draw(volume(), result["u"][every, every, every], given.picture)
