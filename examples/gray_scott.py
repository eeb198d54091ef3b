"""Two substances that react and spread: the Gray-Scott model, as a stencil of two fields.

u_t = a lap(u) - u v^2 + feed (1 - u)
v_t = b lap(v) + u v^2 - (feed + kill) v

With the parameters below, those of J. E. Pearson, Science 261 (1993) 189, spots grow and divide.

Checked: a small wave on a uniform steady state grows or fades as linear theory says, by
exp((J - k^2 D) t) with the Jacobian J of the reaction (J. D. Murray, Mathematical Biology,
volume II, section 2.3). The scheme itself makes it (1 + (J - q D) dt)^steps with
q = 2 (1 - cos k), to rounding, which is the same but for an error of first order in dt.
"""

import math

import numpy as np

import outgrid as og

SPREAD = (0.16, 0.08)
FEED, KILL = 0.05, 0.06  # of the check: here the model has a second steady state
TINY = 1e-7


@og.stencil
def gray_scott(u, v, *, a=0.16, b=0.08, feed=0.037, kill=0.06, dt=1):
    """One explicit step on a grid of unit spacing."""
    reaction = u * v * v
    return {
        "u": u + dt * (a * og.laplacian(u) - reaction + feed * (1 - u)),
        "v": v + dt * (b * og.laplacian(v) + reaction - (feed + kill) * v),
    }


def steady():
    """The uniform state with the most of v: u v = feed + kill, feed (1 - u) = u v^2."""
    u = (1 - math.sqrt(1 - 4 * (FEED + KILL) ** 2 / FEED)) / 2
    return u, (FEED + KILL) / u


def change(cells, discrete=True):
    """The matrix that a wave of one length along the grid changes by, per unit of time."""
    u, v = steady()
    reaction = np.array([[-v * v - FEED, -2 * u * v], [v * v, 2 * u * v - FEED - KILL]])
    k = math.pi / cells
    return reaction - (2 * (1 - math.cos(k)) if discrete else k * k) * np.diag(SPREAD)


def wave(cells=32, time=50, dt=1.0, rows=64):
    """Half a wave along x, of u and v alike, between walls that let nothing through."""
    bump = f"{TINY} * cos(pi * (x + 0.5) / nx)"
    return og.Problem(
        gray_scott,
        (rows, cells),
        "float64",
        round(time / dt),
        {"feed": FEED, "kill": KILL, "dt": dt},
        "neumann",
        {name: f"{value!r} + {bump}" for name, value in zip("uv", steady(), strict=True)},
    )


def amplitudes(result):
    """Of the wave in u and v, over those at the beginning."""
    cells = result["u"].shape[1]
    bump = np.cos(np.pi * (np.arange(cells) + 0.5) / cells)
    return np.array(
        [
            2 * np.mean((result[name][0] - value) * bump) / TINY
            for name, value in zip("uv", steady(), strict=True)
        ]
    )


def exact(cells=32, time=50, dt=1.0, discrete=True):
    """The amplitudes by the scheme, or by the equations."""
    if discrete:
        step = np.eye(2) + dt * change(cells)
        return np.linalg.matrix_power(step, round(time / dt)) @ (1, 1)
    rates, modes = np.linalg.eig(change(cells, discrete=False))
    return (modes @ (np.exp(rates * time) * np.linalg.solve(modes, (1, 1)))).real


def spot(rows=256, columns=256, steps=6000):
    """A square of the other substance in the middle, from which patterns spread."""
    inside = f"(abs(x - {columns / 2}) < 10) * (abs(y - {rows / 2}) < 10)"
    initial = {"u": f"1 - 0.5 * {inside}", "v": f"0.25 * {inside}"}
    return og.Problem(gray_scott, (rows, columns), "float32", steps, {}, "neumann", initial)


def draw(result, path):
    """The second substance."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4, 4), layout="constrained")
    axes.imshow(result["v"][:1024, :1024], cmap="magma")
    axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 256, "help": "cells of an edge"},
        steps={"type": int, "default": 6000, "help": "time steps"},
        dt={"type": float, "help": "a small wave for a time of 50 in such steps, no pattern"},
    )
    if given.dt:
        result = run(wave(given.size, dt=given.dt), given)
        found = amplitudes(result)
        for name, discrete in (("scheme", True), ("equations", False)):
            wanted = exact(given.size, dt=given.dt, discrete=discrete)
            print(
                f"the wave by the {name}: {abs(found - wanted).max() / abs(wanted).max():.1e} off"
            )
    else:
        result = run(spot(given.size, given.size, given.steps), given)
    if given.picture:
        draw(result, given.picture)
