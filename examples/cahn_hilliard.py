"""A mixture that separates: the equation of Cahn and Hilliard, of the fourth order in space.

c_t = lap(c^3 - c - g lap(c)), an explicit step on a periodic grid of unit spacing (J. W. Cahn and
J. E. Hilliard, J. Chem. Phys. 28 (1958) 258). The stencil differs an expression, so that the
chemical potential c^3 - c - g lap(c) is not a field: it takes neither disk nor memory.

Checked: what there is of the substance stays, to rounding, and the free energy, the sum of
(c^2 - 1)^2 / 4 + g |grad c|^2 / 2, falls from step to step. A small wave on a uniform mixture grows
or fades as the scheme's linear theory says, by (1 - dt q (3 c0^2 - 1 + g q))^steps with
q = 2 (1 - cos k).
"""

import math

import numpy as np

import outgrid as og

WIDTH = 0.5  # g: interfaces are about sqrt(2 g) wide
DT = 0.02
TINY = 1e-6


@og.stencil
def cahn_hilliard(c, *, g=WIDTH, dt=DT):
    """One explicit step; its mass and its free energy before the step are left as well."""
    slope = (c[0, 1] - c) ** 2 + (c[1, 0] - c) ** 2
    return {
        "c": c + dt * og.laplacian(c**3 - c - g * og.laplacian(c)),
        "mass": og.sum(c),
        "energy": og.sum(0.25 * (c * c - 1) ** 2 + 0.5 * g * slope),
    }


def mixture(rows=256, columns=256, steps=4000):
    """As much of both, with ripples of no order."""
    ripples = " + ".join(
        f"sin({a} * x + {b} * y + {a * b % 7})" for a, b in ((0.7, 0.3), (0.4, 1.1), (1.3, 0.9))
    )
    noise = f"0.05 * ({ripples}) * cos((x * y) % 97)"
    return og.Problem(
        cahn_hilliard, (rows, columns), "float64", steps, {}, "periodic", {"c": noise}
    )


def wave(cells=32, steps=200, level=0.2):
    """A wave of ``cells`` cells on a uniform mixture."""
    bump = f"{level} + {TINY} * cos(2 * pi * x / nx)"
    return og.Problem(cahn_hilliard, (16, cells), "float64", steps, {}, "periodic", {"c": bump})


def amplitude(result, level=0.2):
    """Of the wave, over that at the beginning."""
    cells = result["c"].shape[1]
    bump = np.cos(2 * np.pi * np.arange(cells) / cells)
    return 2 * np.mean((result["c"][0] - level) * bump) / TINY


def exact(cells=32, steps=200, level=0.2):
    """The amplitude by the linear theory of the scheme."""
    q = 2 * (1 - math.cos(2 * math.pi / cells))
    return (1 - DT * q * (3 * level**2 - 1 + WIDTH * q)) ** steps


def draw(result, path):
    """The substance and its energy."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
    left.imshow(result["c"][:1024, :1024], cmap="coolwarm", vmin=-1, vmax=1)
    left.set(xticks=[], yticks=[])
    right.plot(result.reductions["energy"])
    right.set(xlabel="step", ylabel="free energy", ylim=0)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 256, "help": "cells of an edge"},
        steps={"type": int, "default": 4000, "help": "time steps"},
    )
    result = run(mixture(given.size, given.size, given.steps), given)
    mass, energy = result.reductions["mass"], result.reductions["energy"]
    print(f"mass from {mass[0]:.12g} to {mass[-1]:.12g}")
    rise = np.diff(energy).max()
    print(f"energy from {energy[0]:.6g} to {energy[-1]:.6g}, largest change in a step {rise:.2g}")
    if given.picture:
        draw(result, given.picture)
