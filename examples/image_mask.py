"""Smoothing of a picture by a mask of weights around each pixel.

Checked: against sums of shifted copies in NumPy, mirrored at the edges.
The picture is the portrait of Grace Hopper that matplotlib ships.
"""

import numpy as np
from matplotlib import cbook, image

import outgrid as og


def weights(width):
    """A Gaussian bell of `width` times `width` weights with sum 1."""
    places = np.arange(width) - width // 2
    bell = np.exp(-2 * (places / max(1, width // 4)) ** 2)
    mask = np.outer(bell, bell)
    return mask / mask.sum()


def smoothing(width):
    """The weighted mean over a square around each pixel."""
    mask, half = weights(width), width // 2

    @og.stencil(name=f"mask{width}", ndim=2)
    def rule(u):
        terms = [
            float(mask[y, x]) * u[y - half, x - half] for y in range(width) for x in range(width)
        ]
        return sum(terms[1:], terms[0])

    return rule


def picture():
    """Brightness from 0 to 1."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        return image.imread(file).mean(axis=2) / 255


def problem(pixels, width=3, steps=2):
    """Pixels beyond the edge are those inside, mirrored."""
    return og.Problem(
        smoothing(width), pixels.shape, "float64", steps, boundary="neumann", initial={"u": pixels}
    )


def exact(pixels, width=3, steps=2):
    """The same with sums of shifted copies of the mirrored picture."""
    mask, half = weights(width), width // 2
    for _ in range(steps):
        padded = np.pad(pixels, half, mode="symmetric")
        pixels = sum(
            mask[y, x] * padded[y : y + pixels.shape[0], x : x + pixels.shape[1]]
            for y in range(width)
            for x in range(width)
        )
    return pixels


if __name__ == "__main__":
    given = picture()
    result = og.run(problem(given), memory="256MiB", out="picture")
    print(f"largest difference {abs(result['u'] - exact(given)).max():.1e}")
