"""Poisson's equation around an obstacle, by conjugate gradients: one iteration per step.

A cylinder stands in a box, with charge beside it; the potential p is 0 in both of them, and
-lap(p) = charge in between. alpha and beta of an iteration come of sums that the one before it has
left: r r, d A d, r A d and (A d)(A d) for the residual r and the direction d, with which r r of the
next one is known as well.

Checked: the answer, put into the equation by NumPy, and that of a direct solver.
"""

import numpy as np

import outgrid as og


@og.stencil
def conjugate(p, r, d, free, *, rr, dq, rq, qq):
    """p: the answer so far; r: what it lacks; d: the direction; free: 1 outside of the obstacle."""
    alpha = og.where(dq > 0, rr / dq, 0.0)
    left = rr - 2 * alpha * rq + alpha * alpha * qq
    beta = og.where(rr > 0, og.maximum(left, 0.0) / rr, 0.0)

    def applied(d):
        return -free * og.laplacian(d)

    q, rest = applied(d), r - alpha * applied(d)
    sums = {"residual": og.sum(r * r), "energy": og.sum(d * q)}
    sums |= {"overlap": og.sum(r * q), "square": og.sum(q * q)}
    return [{"p": p + alpha * d, "r": rest, "d": rest + beta * d}, sums]


def problem(size=40, steps=2000):
    """A box of ``size`` rows and a fifth more columns, until the residual has fallen to 1e-9."""
    planes, columns = max(4, size // 2), size * 6 // 5
    free = f"(x - {columns // 2})**2 + (y - {size // 2})**2 > {(size // 5) ** 2}"
    charge = f"({free}) * sin(2 * pi * x / nx) * exp(-((y - ny / 4) / (ny / 8))**2)"
    follows = {"rr": "residual", "dq": "energy", "rq": "overlap", "qq": "square"}
    return og.Problem(
        conjugate,
        (planes, size, columns),
        steps=steps,
        boundary=0.0,
        # In the first step alpha and beta are 0: it takes the residual for its direction.
        parameters={name: og.Lagged(of, lag=1, first=0.0) for name, of in follows.items()},
        initial={"p": 0.0, "r": charge, "d": 0.0, "free": free},
        until=og.Until("residual", every=5, below=1e-18),
    )


def inside(shape):
    """Where p is free, and the charge."""
    _, y, x = np.indices(shape)
    _, rows, columns = shape
    free = (x - columns // 2) ** 2 + (y - rows // 2) ** 2 > (rows // 5) ** 2
    for axis in range(3):
        free[(slice(None),) * axis + ([0, -1],)] = False  # the box
    charge = np.sin(2 * np.pi * x / columns) * np.exp(-(((y - rows / 4) / (rows / 8)) ** 2))
    return free, free * charge


def lacks(result):
    """What the answer lacks of the equation at most, over the largest charge."""
    p = np.asarray(result["p"])
    free, charge = inside(p.shape)
    around = sum(np.roll(p, side, axis) for axis in range(3) for side in (-1, 1))
    return np.abs(free * (6 * p - around - charge)).max() / np.abs(charge).max()


def draw(result, path):
    """The potential in the middle plane."""
    from matplotlib import pyplot

    p = np.asarray(result["p"])
    figure, axes = pyplot.subplots(figsize=(4.2, 3.4), layout="constrained")
    axes.contourf(p[len(p) // 2], 21, cmap="coolwarm")
    axes.set(xticks=[], yticks=[], aspect="equal")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 40, "help": "rows of the box"},
        steps={"type": int, "default": 2000, "help": "iterations at most"},
    )
    result = run(problem(given.size, given.steps), given)
    if result.record.ended:
        print(f"{result.record.ended}; the answer lacks {lacks(result):.1e} of the largest charge")
    if given.picture:
        draw(result, given.picture)
