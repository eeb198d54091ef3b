"""The shape of a part that conducts heat better, from the temperatures that receivers measured.

Heat flows from strips that are warm in the beginning; receivers stand on a coarse grid. SciPy's
L-BFGS changes the diffusivity of each cell by the misfit of the temperatures and its gradient.

Checked: data are computed with a diffusivity that is known.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import outgrid as og

SHAPE, STEPS = (40, 44), 120
POOR, GOOD = 0.08, 0.2  # diffusivity * time step / cell^2
APART = 3  # cells between receivers


@og.stencil
def flow(u, k):
    """Heat in a body of two materials: each face lets through what the mean of both sides does."""

    def through(y, x):
        return (k + k[y, x]) * (u[y, x] - u) / 2

    return u + through(-1, 0) + through(1, 0) + through(0, -1) + through(0, 1)


def truth(shape=SHAPE):
    """Diffusivities of a body with an L-shaped part that conducts better."""
    y, x = np.indices(shape) / np.reshape(shape, (2, 1, 1))
    inside = (y > 0.3) & (y < 0.7) & (x > 0.3) & (x < 0.7)
    return np.where(inside & ~((y < 0.5) & (x > 0.5)), GOOD, POOR)


def experiments(model, steps=STEPS):
    """Two bodies, warm in strips along y and along x."""
    places = [range(2, extent - 2, APART) for extent in model.shape]
    receivers = [og.Receiver("u", (y, x)) for y in places[0] for x in places[1]]
    return [
        og.Problem(
            flow,
            model.shape,
            "float64",
            steps,
            boundary="neumann",
            initial={"u": f"1 + cos({axis} / 3)", "k": model},
            receivers=receivers,
        )
        for axis in "yx"
    ]


def record(model, out, steps=STEPS, **options):
    """What the receivers measure."""
    given = {"progress": False} | options
    problems = enumerate(experiments(model, steps))
    return [og.run(one, out=Path(out) / f"data.{n}", **given).traces for n, one in problems]


def recover(observed, out, shape=SHAPE, iterations=30, **options):
    """The diffusivity of each cell, and the misfit of each evaluation."""
    start = np.full(shape, POOR)
    problems = experiments(start, len(observed[0]))
    objectives = [og.LeastSquares(traces) for traces in observed]
    misfit = og.Misfit(problems, objectives, wrt=["k"], out=Path(out) / "search", **options)
    first, _ = misfit(misfit.start)

    def scaled(flat):
        value, slope = misfit(flat)
        return value / first, slope / first

    limits = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-12}
    bounds = [(0.5 * POOR, 1.2 * GOOD)] * start.size
    left = minimize(
        scaled,
        misfit.start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=limits,
        callback=misfit.iterated,
    )
    return left.x.reshape(shape), misfit.values


def overlap(found, model):
    """Cells of the part in both over those in one of them."""
    inside, there = (one > (POOR + GOOD) / 2 for one in (found, model))
    return (inside & there).sum() / (inside | there).sum()


if __name__ == "__main__":
    from command import arguments, beside

    given = arguments(__doc__, iterations={"type": int, "default": 30, "help": "of L-BFGS"})
    out = given.out or Path("diffusivity")
    observed = record(truth(), out, memory=given.memory)
    found, values = recover(observed, out, iterations=given.iterations, memory=given.memory)
    print(
        f"{len(values)} evaluations: the misfit falls by a factor of {values[0] / min(values):.3g};"
        f" of the cells of the part in one of them {100 * overlap(found, truth()):.0f} % are in"
        " both"
    )
    if given.picture:
        models = {"from receivers": found, "truth": truth()}
        beside(models, given.picture, "diffusivity", (7, 3), vmin=POOR, vmax=GOOD)
