"""The temperature that a body had in the beginning, from what receivers measured later.

The equation is linear, so no state of the run forward is kept: a gradient is one run forward and
one back. SciPy's L-BFGS changes the initial temperature by the misfit and its gradient.

Checked: data are computed with an initial temperature that is known.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import outgrid as og

SHAPE, STEPS = (48, 60), 12
APART = 2  # cells between receivers


def truth(shape=SHAPE):
    """A warm ring and a warm block."""
    y, x = np.indices(shape)
    far = np.hypot(y - 0.4 * shape[0], x - 0.35 * shape[1]) / shape[0]
    ring = (far > 0.14) & (far < 0.26)
    block = (y > 0.55 * shape[0]) & (y < 0.8 * shape[0]) & (abs(x / shape[1] - 0.75) < 0.12)
    return np.where(ring | block, 1.0, 0.0)


def problem(initial, steps=STEPS):
    """The body, with receivers on a coarse grid."""
    places = [range(1, extent - 1, APART) for extent in initial.shape]
    receivers = [og.Receiver("u", (y, x)) for y in places[0] for x in places[1]]
    given = {"initial": {"u": initial}, "receivers": receivers}
    return og.Problem("heat5", initial.shape, "float64", steps, {"k": 0.2}, **given)


def record(initial, out, steps=STEPS, **options):
    """What the receivers measure after each step."""
    given = {"progress": False} | options
    return og.run(problem(initial, steps), out=Path(out) / "data", **given).traces


def recover(observed, out, shape=SHAPE, iterations=40, **options):
    """The initial temperature, and the misfit of each evaluation."""
    posed = problem(np.zeros(shape), len(observed))
    objective = og.LeastSquares(observed)
    misfit = og.Misfit([posed], [objective], wrt=["u"], out=Path(out) / "search", **options)
    limits = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10}
    bounds = [(0.0, None)] * posed.cells
    left = minimize(
        misfit, misfit.start, jac=True, method="L-BFGS-B", bounds=bounds, options=limits
    )
    return left.x.reshape(shape), misfit.values


if __name__ == "__main__":
    from command import arguments, beside

    given = arguments(__doc__, iterations={"type": int, "default": 40, "help": "of L-BFGS"})
    out, initial = given.out or Path("temperature"), truth()
    observed = record(initial, out, memory=given.memory)
    found, values = recover(observed, out, iterations=given.iterations, memory=given.memory)
    print(
        f"{len(values)} evaluations: the misfit falls by a factor of {values[0] / min(values):.3g};"
        f" the mean error of the temperature is {np.abs(found - initial).mean():.3f}"
    )
    if given.picture:
        later = np.asarray(og.open(out / "data")["u"])
        fields = {"start": initial, "measured later": later, "found": found}
        scale = {"cmap": "inferno", "vmin": 0, "vmax": 1}
        beside(fields, given.picture, "temperature", (9, 2.6), **scale)
