"""Sound of a point source in free space, heard at some distance.

Checked: in three dimensions p(r, t) = f(t - r/c) / (4 pi r) for p_tt = c^2 lap p + f(t) delta
(L. D. Landau and E. M. Lifshitz, Fluid Mechanics, section 74). The run stops before anything comes
back from the walls.
"""

import math

import numpy as np

import outgrid as og

COURANT = 0.4  # c dt / dx, with c = dx = 1
WIDTH = 8.0  # of the pulse, in cells


@og.stencil(ndim=3)
def sound(p, *, s=COURANT):
    """Second order in time, fourth in space."""
    return 2 * p - p.previous + s * s * og.laplacian(p, order=4)


def pulse(time):
    """A smooth signal that begins at 0."""
    return np.exp(-(((np.asarray(time) - 3 * WIDTH) / WIDTH) ** 2))


def problem(cells=80, steps=110, distance=16):
    """A source in the middle and a receiver `distance` cells away along x."""
    middle = (cells / 2 - 0.25, cells / 2, cells / 2)  # between two planes
    signal = COURANT**2 * pulse(COURANT * np.arange(steps))
    ear = (middle[0], middle[1], middle[2] + distance)
    return og.Problem(
        sound,
        (cells, cells, cells),
        "float64",
        steps,
        initial={"p": 0.0},
        sources=[og.Source("p", middle, signal)],
        receivers=[og.Receiver("p", ear)],
    )


def exact(steps=110, distance=16):
    """What the receiver hears after each step."""
    time = COURANT * np.arange(1, steps + 1) - distance
    return pulse(time) / (4 * math.pi * distance)


if __name__ == "__main__":
    result = og.run(problem(), memory="256MiB", out="sound")
    heard = result.traces[:, 0]
    print(f"largest error {abs(heard - exact()).max() / exact().max():.4f} of the largest value")
