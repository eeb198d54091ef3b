"""A channel: warm water flows in by turns, spreads, loses heat to the walls and flows out.

u_t + c u_x = d (u_xx + u_yy) by centred differences and the midpoint rule, c and d per cell and
step. Beyond the inflow u is given by row and step, for the first half of a step by the step alone
and for the second by its middle; at the walls the loss is that of Robin's condition, a u + du/dn =
0; at the outflow the slope is 0.

Checked against the exact solution: a mode cos(mu (y - middle)) with mu tan(mu height / 2) = a that
comes in as sin(w t) goes on as the imaginary part of exp(k x + i w t), d k^2 - c k - d mu^2 = i w.
"""

import cmath
import math

import numpy as np

import outgrid as og

SPEED, SPREAD, PERIOD, BEND = 0.4, 0.05, 60, 0.9  # of the coarsest grid; mu height / 2
SHAPE, STEPS = (12, 64), 400


@og.stencil
def channel(u, *, speed, spread):
    """One step by the midpoint rule."""

    def change(u):
        return spread * og.laplacian(u) - speed * og.centered(u, "x")

    half = og.temporary(u + change(u) / 2, name="half")
    return u + change(half)


def rows(finer):
    """The wave number across, and the middle."""
    height = SHAPE[0] * finer
    return 2 * BEND / height, (height - 1) / 2


def problem(finer=1, steps=0):
    """Cells and steps are ``finer`` times as small."""
    mu, middle = rows(finer)
    w = 2 * math.pi / (PERIOD * finer)

    def inflow(step):
        value = f"cos({mu} * (y - {middle})) * sin({w} * ({step}))"
        return {"kind": "given", "value": value}

    wall = {"kind": "robin", "a": mu * math.tan(BEND), "b": 1.0}
    whole = {"kind": "neumann", "y": wall, "x-": inflow("step")}
    return og.Problem(
        channel,
        tuple(finer * n for n in SHAPE),
        steps=steps or STEPS * finer,
        parameters={"speed": SPEED, "spread": SPREAD * finer},
        boundary=whole | {"fields": {"half": {"x-": inflow("step + 0.5"), "y": wall}}},
        initial={"u": 0.0},
    )


def exact(finer=1):
    """What there is after all steps, had it been so for ever and went on behind the outflow."""
    mu, middle = rows(finer)
    w, d = 2 * math.pi / (PERIOD * finer), SPREAD * finer
    k = (SPEED - cmath.sqrt(SPEED**2 + 4 * d * (d * mu**2 + 1j * w))) / (2 * d)
    y, x = (np.arange(finer * n) for n in SHAPE)
    along = np.exp(k * (x + 1) + 1j * w * STEPS * finer).imag
    return np.cos(mu * (y - middle))[:, None] * along


def difference(result, finer=1):
    """The largest one in the first three quarters, over what comes in at most."""
    part = slice(0, 3 * finer * SHAPE[1] // 4)
    return np.abs(result["u"] - exact(finer))[:, part].max()


def draw(result, path):
    """The water as it is at the end."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 1.9), layout="constrained")
    image = axes.imshow(result["u"], cmap="coolwarm", vmin=-1, vmax=1, aspect="auto")
    axes.set(xticks=[], yticks=[])
    figure.colorbar(image)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        finer={"type": int, "default": 1, "help": "times as many cells and steps"},
        steps={"type": int, "default": 0, "help": "time steps; until the flow is periodic"},
    )
    result = run(problem(given.finer, given.steps), given)
    if not given.steps:
        print(f"largest difference from the exact solution {difference(result, given.finer):.4f}")
    if given.picture:
        draw(result, given.picture)
