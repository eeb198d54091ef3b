"""A stencil of one's own: sound in a duct, with pressure and velocity on a staggered grid.

The duct is closed at both ends, goes round along y, and a loudspeaker hums in it. Velocities lie
half a cell on: at the left wall that is the cell before the first one, at the right the last one.

Checked: nothing is lost, the pressure adds up to what the source has put in, to 1e-12.
"""

import numpy as np

import outgrid as og


@og.stencil
def duct(p, u, v, *, s):
    return [
        {"u": u - s * (p[0, 1] - p), "v": v - s * (p[1, 0] - p)},
        {"p": p - s * (u - u[0, -1] + v - v[-1, 0])},
    ]


WALLS = {"y": "periodic", "x": "neumann", "fields": {"u": {"x-": "zero", "x+": "odd-mirror"}}}


def problem(finer=1, steps=300):
    return og.Problem(
        duct,
        shape=(120 * finer, 200 * finer),
        steps=steps,
        parameters={"s": 0.5},
        boundary=WALLS,
        initial={"p": 0.0, "u": 0.0, "v": 0.0},
        sources=[og.Source("p", (60, 50), np.sin(0.2 * np.arange(steps)))],
    )


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        finer={"type": int, "default": 1, "help": "cells along each axis for each one"},
        steps={"type": int, "default": 300, "help": "time steps"},
    )
    result = run(problem(given.finer, given.steps), given)
    hum = np.sin(0.2 * np.arange(given.steps)).sum()
    print(f"pressure {result['p'].sum():.6f}, put in {hum:.6f}")
