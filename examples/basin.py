"""Water that sloshes in a round basin with a parabolic floor, by the linear shallow-water equation.

It is the stencil of the demonstration, there over a real sea floor: a wave slows down where the sea
gets shallow, and the shore is where the depth is 0.

Checked: over the depth h0 (1 - r^2/a^2) the surface can be a plane that tilts to and fro,
x cos(w t) with w^2 = 2 g h0 / a^2, or a dome that rises and falls, (1 - 2 r^2/a^2) cos(w t) with
w^2 = 8 g h0 / a^2 (H. Lamb, Hydrodynamics, 6th ed., section 193; W. C. Thacker, J. Fluid Mech. 107
(1981) 499, for small amplitudes).
"""

import math

import numpy as np

import outgrid as og

GRAVITY, DEEPEST = 9.81, 100.0
RADIUS = 0.4  # of the basin, over the edge of the grid
COURANT = 0.5  # sqrt(g h0) dt / dx
SHAPES = {"plane": (2, "{x} / {a}"), "dome": (8, "(1 - 2 * ({x}**2 + {y}**2) / {a}**2)")}


def frequency(cells, shape="dome"):
    """Angular frequency times dt."""
    return math.sqrt(SHAPES[shape][0]) * COURANT / (RADIUS * cells)


def steps_of(cells, periods, shape="dome"):
    """Steps in a number of periods, to the nearest."""
    return round(periods * 2 * math.pi / frequency(cells, shape))


def problem(cells=128, periods=1.0, shape="dome", dtype="float64"):
    """Let go at its highest, in a square of `cells` by `cells`."""
    x, y = (f"({axis} - {(cells - 1) / 2})" for axis in "xy")
    a = RADIUS * cells
    surface = SHAPES[shape][1].format(x=x, y=y, a=a)
    return og.Problem(
        "shallow_water",
        (cells, cells),
        dtype,
        steps_of(cells, periods, shape),
        {"g": GRAVITY, "dt": COURANT / math.sqrt(GRAVITY * DEEPEST), "dx": 1.0},
        "frozen",
        {
            "eta": surface,
            "eta.previous": f"{math.cos(frequency(cells, shape))!r} * {surface}",
            "h": f"{DEEPEST} * (1 - ({x}**2 + {y}**2) / {a}**2)",
        },
    )


def error(result, periods=1.0, shape="dome"):
    """The root of the mean of the squared difference over the water, row by row."""
    surface = result["eta"]
    cells, a = len(surface), RADIUS * len(surface)
    now = math.cos(frequency(cells, shape) * steps_of(cells, periods, shape))
    x = np.arange(cells) - (cells - 1) / 2
    total = count = 0.0
    for y, row in zip(x, surface, strict=True):
        wet = x**2 + y**2 < a**2
        wanted = x / a if shape == "plane" else 1 - 2 * (x**2 + y**2) / a**2
        total += float(np.sum((row - now * wanted)[wet] ** 2))
        count += wet.sum()
    return math.sqrt(total / count)


def draw(result, path):
    """The surface in the basin."""
    from matplotlib import pyplot

    surface = np.array(result["eta"][:: max(1, len(result["eta"]) // 512)])
    surface = surface[:, :: max(1, surface.shape[1] // 512)]
    y, x = (np.indices(surface.shape) - (len(surface) - 1) / 2) / len(surface)
    figure, axes = pyplot.subplots(figsize=(4.6, 3.8), layout="constrained")
    shown = axes.imshow(np.where(np.hypot(x, y) < 0.98 * RADIUS, surface, np.nan))
    axes.set(xticks=[], yticks=[])
    figure.colorbar(shown, label="surface")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 256, "help": "cells of an edge"},
        periods={"type": float, "default": 1.0, "help": "time in periods"},
        shape={"choices": list(SHAPES), "default": "dome", "help": "of the surface"},
    )
    result = run(problem(given.size, given.periods, given.shape), given)
    found = error(result, given.periods, given.shape)
    print(f"root mean square of the error {found:.2e}, of an amplitude of 1")
    if given.picture:
        draw(result, given.picture)
