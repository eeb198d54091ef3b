"""Creep of soil on a real hillslope: diffusion of the height of the land.

The terrain is the elevation model that matplotlib ships (344 x 403 heights around the Jacksboro
fault, USGS). More cells than that lie between its points, by linear interpolation.

Checked: diffusion between walls that let nothing through keeps the volume, and smooths each mode of
the cosine transform by a factor that is known; so the answer is known for the real data too, from
NumPy's Fourier transform. The equation itself, without steps in space and time, smooths it by
exp(-k^2 D t); the second figure is the difference from that.
"""

from pathlib import Path

import numpy as np

import outgrid as og

STRENGTH = 0.2  # diffusivity dt / dx^2


@og.stencil(ndim=2)
def creep(h, *, k=STRENGTH):
    """Explicit Euler, stable up to k = 1/4."""
    return h + k * og.laplacian(h)


def terrain():
    """Heights in metres."""
    from matplotlib import cbook

    with cbook.get_sample_data("jacksboro_fault_dem.npz") as found:
        return found["elevation"].astype(np.float64)


def finer(height, times, path):
    """Write the heights with `times` as many rows and columns, a row at a time."""
    rows, columns = (np.arange(n * times) / times for n in height.shape)
    along = np.arange(height.shape[1])
    with path.open("wb") as file:
        shape = (len(rows), len(columns))
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for row in rows:
            low, high = int(row), min(int(row) + 1, len(height) - 1)
            line = height[low] + (row - low) * (height[high] - height[low])
            file.write(np.interp(columns, along, line).tobytes())
    return shape


def problem(height, steps=100, shape=None):
    """No soil leaves through the sides. `height` is an array, or a file of `shape`."""
    return og.Problem(
        creep, shape or height.shape, "float64", steps, boundary="neumann", initial={"h": height}
    )


def exact(height, steps=100, of_the_equation=False):
    """The same by the discrete cosine transform: mirror, transform, damp, transform back."""
    mirrored = np.block([[height, height[:, ::-1]], [height[::-1], height[::-1, ::-1]]])
    angles = np.meshgrid(*(np.fft.fftfreq(n) * np.pi for n in mirrored.shape), indexing="ij")
    if of_the_equation:
        left = np.exp(-4 * STRENGTH * steps * sum(angle**2 for angle in angles))
    else:
        left = (1 - 4 * STRENGTH * sum(np.sin(angle) ** 2 for angle in angles)) ** steps
    back = np.fft.ifft2(np.fft.fft2(mirrored) * left).real
    return back[: height.shape[0], : height.shape[1]]


def draw(before, after, path):
    """The land before and after."""
    from matplotlib import pyplot
    from matplotlib.colors import LightSource

    figure, both = pyplot.subplots(1, 2, figsize=(8, 3.7), layout="constrained")
    for axes, height, name in zip(both, (before, after), ("before", "after"), strict=True):
        shade = LightSource(315, 45).shade(
            height, pyplot.cm.gist_earth, vert_exag=0.03, blend_mode="soft"
        )
        axes.imshow(shade)
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        finer={"type": int, "default": 1, "help": "rows and columns for each one of the data"},
        steps={"type": int, "default": 100, "help": "time steps"},
    )
    land = terrain()
    if given.finer > 1:
        start = Path("hillslope.npy")
        posed = problem(start, given.steps, finer(land, given.finer, start))
    else:
        posed = problem(land, given.steps)
    result = run(posed, given)
    every = slice(None, None, given.finer)
    print(f"volume {result['h'].mean(dtype=np.float64) / land.mean() - 1:+.1e}")
    if given.finer == 1:
        for name, of_the_equation in (("scheme", False), ("equation", True)):
            difference = abs(result["h"] - exact(land, given.steps, of_the_equation)).max()
            print(f"largest difference from the exact answer of the {name}: {difference:.2e} m")
    if given.picture:
        draw(land, result["h"][every, every], given.picture)
