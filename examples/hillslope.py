"""Creep of soil on a real hillslope: diffusion of the height of the land.

The terrain is the elevation model that matplotlib ships (a part of the Jacksboro fault, USGS).
Checked: diffusion between walls that let nothing through keeps the volume, and smooths each mode of
the cosine transform by the factor of the scheme; so the answer is known for the real data too.
"""

import numpy as np
from matplotlib import cbook

import outgrid as og


@og.stencil(ndim=2)
def creep(h, *, k=0.2):
    """Explicit Euler with k = diffusivity dt / dx^2; stable up to 1/4."""
    return h + k * og.laplacian(h)


def terrain():
    """Heights in metres."""
    with cbook.get_sample_data("jacksboro_fault_dem.npz") as found:
        return found["elevation"].astype(np.float64)


def problem(height, steps=100):
    """No soil leaves through the sides."""
    return og.Problem(
        creep, height.shape, "float64", steps, boundary="neumann", initial={"h": height}
    )


def exact(height, steps=100, k=0.2):
    """The same by the discrete cosine transform: mirror, transform, damp, transform back."""
    mirrored = np.block([[height, height[:, ::-1]], [height[::-1], height[::-1, ::-1]]])
    angles = [np.fft.fftfreq(n) * np.pi for n in mirrored.shape]
    smaller = 1 - 4 * k * sum(np.sin(angle) ** 2 for angle in np.meshgrid(*angles, indexing="ij"))
    back = np.fft.ifft2(np.fft.fft2(mirrored) * smaller**steps).real
    return back[: height.shape[0], : height.shape[1]]


if __name__ == "__main__":
    land = terrain()
    result = og.run(problem(land), memory="256MiB", out="hillslope")
    print(f"largest error {abs(result['h'] - exact(land)).max():.2e} m")
