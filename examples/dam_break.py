"""A dam that breaks: the nonlinear shallow-water equations, with a bore that runs into still water.

Water of two depths is let go; a bore runs into the shallow part and the surface sinks on the other
side. Finite volumes with the fluxes of A. Harten, P. D. Lax and B. van Leer (SIAM Review 25 (1983),
doi:10.1137/1025002), of first order, between walls.

Checked: against the solution of J. J. Stoker (Water Waves, 1957, section 10.8) for a straight dam.
The mean difference shrinks with the cell to the power of 0.8 (a bore is smeared over some cells by
any such scheme) and is 0.62 % of the deeper water with 256 cells; no water is lost.
"""

import math

import numpy as np

import outgrid as og

GRAVITY, DEEP, SHALLOW = 1.0, 1.0, 0.25
COURANT = 0.45  # (speed of water and waves) * dt / dx
FASTEST = 2 * math.sqrt(GRAVITY * DEEP)  # nothing moves faster than water into a dry bed


@og.stencil(ndim=2)
def dam_break(h, p, q, *, s):
    """Depth h and discharges p along x, q along y; s = dt / dx."""

    def cell(*offset):
        return h[offset], p[offset], q[offset]

    def flux(left, right, along):
        """What flows through the face of two cells: of depth, and of both discharges."""
        (speed_left, flow_left), (speed_right, flow_right) = (
            carried(state, along) for state in (left, right)
        )
        wave_left, wave_right = (og.sqrt(GRAVITY * state[0]) for state in (left, right))
        slow = og.minimum(og.minimum(speed_left - wave_left, speed_right - wave_right), 0)
        fast = og.maximum(og.maximum(speed_left + wave_left, speed_right + wave_right), 0)
        return [
            (fast * ours - slow * theirs + fast * slow * (b - a)) / (fast - slow)
            for ours, theirs, a, b in zip(flow_left, flow_right, left, right, strict=True)
        ]

    def carried(state, along):
        """The velocity along an axis, 1 for x and 2 for y, and the flow of all three there."""
        velocity = state[along] / state[0]
        flow = [velocity * each for each in state]
        flow[along] = flow[along] + 0.5 * GRAVITY * state[0] * state[0]
        return velocity, flow

    here = cell(0, 0)
    low_x, high_x = flux(cell(0, -1), here, 1), flux(here, cell(0, 1), 1)
    low_y, high_y = flux(cell(-1, 0), here, 2), flux(here, cell(1, 0), 2)
    return tuple(
        value + s * ((a - b) + (c - d))
        for value, a, b, c, d in zip(here, low_x, high_x, low_y, high_y, strict=True)
    )


def problem(cells=256, rows=8, time=0.2, dam=None):
    """Water in a channel of length 1 until `time`, deep where the formula `dam` is true.

    Without one the dam is straight, in the middle of the channel.
    """
    steps = math.ceil(time * FASTEST * cells / COURANT)
    return og.Problem(
        dam_break,
        (rows, cells),
        "float64",
        steps,
        {"s": time / steps * cells},
        {"kind": "neumann", "fields": {"p": {"x": "odd"}, "q": {"y": "odd"}}},
        {
            "h": f"where({dam or f'x + 0.5 < {cells / 2}'}, {DEEP}, {SHALLOW})",
            "p": 0.0,
            "q": 0.0,
        },
    )


def round_dam(cells):
    """A dam around the middle of a square of so many cells."""
    return f"hypot(x + 0.5 - {cells / 2}, y + 0.5 - {cells / 2}) < {cells / 5}"


def exact(cells=256, time=0.2):
    """The depth in the middles of the cells by Stoker's solution."""
    still = math.sqrt(GRAVITY * DEEP)

    def surplus(depth):
        """Velocity behind the wave that sinks, less that behind a bore, at the same depth."""
        bore = (depth - SHALLOW) * math.sqrt(GRAVITY / 2 * (1 / depth + 1 / SHALLOW))
        return 2 * (still - math.sqrt(GRAVITY * depth)) - bore

    low, high = SHALLOW, DEEP
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) > 0 else (low, middle)
    wave = math.sqrt(GRAVITY * low)
    velocity = 2 * (still - wave)
    bore = low * velocity / (low - SHALLOW)
    speed = ((np.arange(cells) + 0.5) / cells - 0.5) / time
    sinking = (2 * still - speed) ** 2 / (9 * GRAVITY)
    behind = np.where(speed < bore, low, SHALLOW)
    return np.where(speed < -still, DEEP, np.where(speed < velocity - wave, sinking, behind))


def draw(result, path):
    """The depth."""
    from matplotlib import pyplot

    depth = result["h"]
    every = slice(None, None, max(1, len(depth) // 512))
    figure, axes = pyplot.subplots(figsize=(4.6, 3.8), layout="constrained")
    shown = axes.imshow(depth[every, every], cmap="viridis")
    axes.set(xticks=[], yticks=[])
    figure.colorbar(shown, label="depth")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 256, "help": "cells along the channel"},
        rows={"type": int, "default": 8, "help": "cells across"},
        time={"type": float, "default": 0.2, "help": "in units of length / speed of a wave"},
        dam={"choices": ["straight", "round"], "default": "straight", "help": "round: in a square"},
    )
    if given.dam == "round":
        posed = problem(given.size, given.size, given.time, round_dam(given.size))
        result = run(posed, given)
    else:
        result = run(problem(given.size, given.rows, given.time), given)
        difference = abs(result["h"][0] - exact(given.size, given.time)).mean()
        print(f"mean difference from Stoker's solution {difference / DEEP:.2%} of the deeper water")
    if given.picture:
        draw(result, given.picture)
