"""Maxwell's equations in a square cavity with conducting walls, on Yee's staggered grid.

Checked: a mode of the cavity stays that mode, and oscillates at the frequency that the scheme
has by its dispersion relation, sin(w dt/2) = c sqrt(sin(kx/2)^2 + sin(ky/2)^2) in units of a cell
(A. Taflove and S. C. Hagness, Computational Electrodynamics, 3rd ed., section 4.3), which tends to
c |k| as the grid gets finer.
"""

import math

import numpy as np

import outgrid as og

COURANT = 0.5  # c dt / dx


@og.stencil(ndim=2)
def cavity(e, hx, hy, inside, *, s=COURANT):
    """Hx and Hy from E, then E from the new ones: each field in place.

    The walls are the outermost cells but one, where `inside` is 0 and E stays 0.
    """
    return [
        {"hx": hx - s * (e[1, 0] - e), "hy": hy + s * (e[0, 1] - e)},
        {"e": e + inside * s * (hy - hy[0, -1] - hx + hx[-1, 0])},
    ]


def frequency(cells, modes=(1, 2)):
    """Angular frequency times dt of a mode of the scheme."""
    halves = [math.sin(math.pi * m / (2 * cells)) for m in modes]
    return 2 * math.asin(COURANT * math.hypot(*halves))


def problem(cells=64, steps=200, modes=(1, 2)):
    """One mode with E at its largest, H half a step earlier; E is 0 on the walls."""
    ky, kx = (f"(pi * {m} / {cells})" for m in modes)
    sin_y, sin_x = f"sin({ky} * (y - 1))", f"sin({kx} * (x - 1))"
    walls = " * ".join(f"where(abs({a} - {cells / 2 + 1}) < {cells / 2}, 1, 0)" for a in "yx")
    # H by half a step back is half the curl of E.
    return og.Problem(
        cavity,
        (cells + 3, cells + 3),
        "float64",
        steps,
        initial={
            "e": f"{sin_y} * {sin_x} * {walls}",
            "hx": f"{COURANT / 2} * (sin({ky} * y) - {sin_y}) * {sin_x}",
            "hy": f"-{COURANT / 2} * (sin({kx} * x) - {sin_x}) * {sin_y}",
            "inside": walls,
        },
        receivers=[og.Receiver("e", (1 + cells // 4, 1 + cells // 4))],
    )


def exact(cells=64, steps=200, modes=(1, 2)):
    """What the receiver sees after each step."""
    place = math.prod(math.sin(math.pi * m / cells * (cells // 4)) for m in modes)
    return place * np.cos(frequency(cells, modes) * np.arange(1, steps + 1))


def draw(result, path):
    """The electric field."""
    from matplotlib import pyplot

    field = result["e"]
    every = slice(None, None, max(1, len(field) // 512))
    figure, axes = pyplot.subplots(figsize=(4.4, 3.6), layout="constrained")
    shown = axes.imshow(field[every, every], origin="lower", cmap="RdBu_r", vmin=-1, vmax=1)
    axes.set(xticks=[], yticks=[])
    figure.colorbar(shown, label="electric field")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 64, "help": "cells from wall to wall"},
        steps={"type": int, "default": 200, "help": "time steps"},
    )
    result = run(problem(given.size, given.steps), given)
    error = abs(result.traces[:, 0] - exact(given.size, given.steps)).max()
    print(f"largest difference from the mode of the scheme {error:.1e}")
    limit = COURANT * math.pi / given.size * math.hypot(1, 2)
    print(f"frequency {frequency(given.size) / limit - 1:+.1e} from that of Maxwell's equations")
    if given.picture:
        draw(result, given.picture)
