"""Sound-like waves in tilted layers of rock (TTI): velocity depends on the direction.

Two stresses p and q of second order in time, after Y. Zhang, H. Zhang and G. Zhang, A stable TTI
reverse time migration and its implementation, Geophysics 76 (2011), doi:10.1190/1.3554411, with
E. Duveneck and P. M. Bakker's symmetric form (Geophysics 76 (2011), doi:10.1190/1.3533964):

    p_tt = v^2 ((1 + 2 e) H p + s V q),  q_tt = v^2 (s H p + V q),  s = sqrt(1 + 2 d)

V is the second derivative along the axis of symmetry, which is tilted by an angle, H that across
it. Both have a mixed derivative, `og.cross`.

Checked: a plane wave goes as fast as the exact velocity of the acoustic approximation says
(T. Alkhalifah, Geophysics 65 (2000), doi:10.1190/1.1444815): the frequency of a standing wave in
each of several directions, by its turning.
"""

import math

import numpy as np

import outgrid as og

EPSILON, DELTA, TILT = 0.24, 0.1, math.radians(30)  # of Thomsen, and of the axis
COURANT = 0.1


@og.stencil
def tilted(p, q, *, vv=COURANT**2, e=EPSILON, d=DELTA, tilt=TILT):
    """One step of both; vv is (v dt / h)^2."""
    c, n, s = og.cos(tilt), og.sin(tilt), og.sqrt(1 + 2 * d)

    def along(u):
        xx, yy = og.second(u, "x", 8), og.second(u, "y", 8)
        return n * n * xx + 2 * n * c * og.cross(u, "x", "y", 8) + c * c * yy

    def across(u):
        xx, yy = og.second(u, "x", 8), og.second(u, "y", 8)
        return c * c * xx - 2 * n * c * og.cross(u, "x", "y", 8) + n * n * yy

    h, v = og.temporary(across(p), name="h"), og.temporary(along(q), name="v")
    return {
        "p": 2 * p - p.previous + vv * ((1 + 2 * e) * h + s * v),
        "q": 2 * q - q.previous + vv * (s * h + v),
    }


def velocity(angle):
    """Over v, of a plane wave at an angle from the axis of symmetry; and q over p there."""
    n, c = math.sin(angle) ** 2, math.cos(angle) ** 2
    trace = (1 + 2 * EPSILON) * n + c
    square = trace / 2 + math.sqrt(trace**2 / 4 - 2 * (EPSILON - DELTA) * n * c)
    s = math.sqrt(1 + 2 * DELTA)
    share = s * n / (square - c) if square > c else 1 / s
    return math.sqrt(square), share


def problem(across=(2, 1), size=64, steps=300):
    """A standing wave with so many waves along x and y of the square."""
    columns, rows = across
    along = f"2 * pi * ({columns} * x / nx + {rows} * y / ny)"
    _, share = velocity(direction(across))
    wave = {"p": f"cos({along})", "q": f"{share!r} * cos({along})"}
    return og.Problem(tilted, (size, size), "float64", steps, {}, "periodic", wave)


def direction(across):
    """The angle of the wave from the axis of symmetry, which lies `TILT` from y towards x."""
    return math.atan2(across[0], across[1]) - TILT


def measured(result, across):
    """The velocity over v by what the wave has turned since it stood still."""
    p = np.asarray(result["p"])
    size, steps = p.shape[0], result.record.steps
    rows, columns = np.mgrid[0:size, 0:size]
    wave = np.cos(2 * np.pi * (across[0] * columns + across[1] * rows) / size)
    number = 2 * math.pi * math.hypot(*across) / size
    expected = velocity(direction(across))[0] * COURANT * number
    # It rests half a step before the first: u(n) cos(w / 2) = cos(w (n + 1/2)).
    height = 2 * np.mean(p * wave) * math.cos(expected / 2)
    turned = math.acos(max(-1.0, min(1.0, height)))
    turns = round(expected * (steps + 0.5) / (2 * math.pi)) * 2 * math.pi
    phases = turns + turned, turns - turned
    nearest = min(phases, key=lambda phase: abs(phase - expected * (steps + 0.5)))
    return nearest / (steps + 0.5) / (COURANT * number)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 64, "help": "cells of an edge"},
        steps={"type": int, "default": 300, "help": "time steps"},
    )
    waves = (2, 1)
    result = run(problem(waves, given.size, given.steps), given)
    exact = velocity(direction(waves))[0]
    print(f"velocity {measured(result, waves):.6f}, exact {exact:.6f} of that along the axis")
