"""Maxwell's equations in a box with conducting walls, in three dimensions, on Yee's grid.

Fields are vectors. The component of E along an axis lies half a cell on along it, that of H along
the other two. The walls are symmetries: E along a wall is odd about it, H along a wall is even.

Checked: a mode stays that mode and oscillates at the frequency of the scheme, sin(w dt/2) = c dt
|(sin(kx/2), sin(ky/2), sin(kz/2))| in units of a cell (A. Taflove and S. C. Hagness, Computational
Electrodynamics, 3rd ed., section 4.3), to 1e-12.
"""

import math

import numpy as np

import outgrid as og

COURANT = 0.5  # c dt / dx
AMPLITUDES = np.array([0.3, -0.7, 1.0])  # of E along z, y, x, before it is made free of charge
AXES = "zyx"
AFTER = {"z": ("x", "y"), "y": ("z", "x"), "x": ("y", "z")}  # a right-handed turn


@og.stencil(ndim=3)
def box(e: og.Vector, h: og.Vector, *, s=COURANT):
    """H from E, then E from the new H: each component in place."""
    turned = {
        a: h[a] - s * (og.forward(e[c], b) - og.forward(e[b], c)) for a, (b, c) in AFTER.items()
    }
    return [
        {"h": turned},
        {
            "e": {
                a: e[a] + s * (og.backward(h[c], b) - og.backward(h[b], c))
                for a, (b, c) in AFTER.items()
            }
        },
    ]


def mode(shape, modes):
    """Wave numbers per cell, their differences on the grid, and amplitudes of E and of H."""
    waves = np.array([math.pi * m / (n - 1) for m, n in zip(modes, shape, strict=True)])
    slopes = 2 * np.sin(waves / 2)
    electric = AMPLITUDES - slopes * (AMPLITUDES @ slopes) / (slopes @ slopes)
    magnetic = -np.cross(slopes, electric)  # (z, y, x) is left-handed
    return waves, slopes, electric, magnetic


def problem(shape=(33, 29, 25), steps=100, modes=(1, 2, 1)):
    """One mode with E at its largest; H half a step earlier."""
    waves, _, electric, magnetic = mode(shape, modes)
    sines = {a: f"sin({k!r} * {a})" for a, k in zip(AXES, waves.tolist(), strict=True)}
    cosines = {a: f"cos({k!r} * ({a} + 0.5))" for a, k in zip(AXES, waves.tolist(), strict=True)}
    initial, fields = {}, {}
    for n, a in enumerate(AXES):
        b, c = AFTER[a]
        initial[f"e_{a}"] = f"{electric[n]!s} * {cosines[a]} * {sines[b]} * {sines[c]}"
        size = COURANT / 2 * magnetic[n]
        initial[f"h_{a}"] = f"{size!s} * {sines[a]} * {cosines[b]} * {cosines[c]}"
        fields[f"e_{a}"] = {a: "neumann", b: "odd-mirror", c: "odd-mirror"}
        fields[f"h_{a}"] = {a: "odd-mirror", b: "neumann", c: "neumann"}
    return og.Problem(
        box,
        shape,
        "float64",
        steps,
        boundary={"kind": "neumann", "fields": fields},
        initial=initial,
        receivers=[og.Receiver(f"e_{a}", (9, 6, 11)) for a in AXES],
    )


def exact(shape=(33, 29, 25), steps=100, modes=(1, 2, 1)):
    """What the receivers see after each step."""
    waves, slopes, electric, _ = mode(shape, modes)
    frequency = 2 * math.asin(COURANT * math.hypot(*(slopes / 2)))
    place = np.array([9, 6, 11])
    sines, cosines = np.sin(waves * place), np.cos(waves * (place + 0.5))
    shapes = [cosines[n] * np.prod(np.delete(sines, n)) for n in range(3)]
    return np.cos(frequency * np.arange(1, steps + 1))[:, None] * (electric * shapes)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 65, "help": "cells along each axis"},
        steps={"type": int, "default": 200, "help": "steps"},
    )
    shape = (given.size,) * 3
    result = run(problem(shape, given.steps), given)
    error = abs(result.traces - exact(shape, given.steps)).max()
    print(f"largest difference from the mode: {error:.1e}")
