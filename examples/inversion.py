"""Full-waveform inversion: the speed of waves in the ground, from what receivers at its top saw.

Shots are fired one after another, each a problem of its own. SciPy's L-BFGS changes the model by
the misfit and its gradient, which are sums over the shots (og.Misfit). Started again, a search that
was cut off goes on.

Checked: data are computed with a known model, from which the inversion begins far away.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import outgrid as og

SLOW, FAST = 0.16, 0.22  # squares of (speed * time step / cell)
SHAPE, SHOTS = (48, 64), 4
TOP = 4  # row of sources and receivers
LAYER = 10


def truth(shape=SHAPE):
    """A fast layer below, with a step in it, and a fast lens above."""
    y, x = np.indices(shape)
    floor = np.where(x < shape[1] // 2, 0.7, 0.6) * shape[0]
    lens = ((y - 0.38 * shape[0]) / 5) ** 2 + ((x - 0.45 * shape[1]) / 9) ** 2 < 1
    return np.where((y > floor) | lens, FAST, SLOW)


def start(shape=SHAPE):
    """Speeds that rise with depth."""
    y, _ = np.indices(shape)
    return SLOW + (FAST - SLOW) * np.clip(y / shape[0] - 0.3, 0, 1)


def shots(model, count=SHOTS):
    """A problem for each source."""
    pulse = ricker(np.arange(int(2.6 * sum(model.shape))) - 24.0, 6.0)
    return survey(model, count, pulse, LAYER, LAYER + 2)


def ricker(t, period):
    """Ricker's wavelet, whose middle is at t = 0."""
    return (1 - (t / period) ** 2) * np.exp(-((t / period) ** 2) / 2)


def survey(model, count, pulse, layer, edge):
    """A problem for each source, of as many steps as the pulse has values: a free surface, a sponge
    of `layer` cells, and `edge` columns without sources and receivers on either side."""
    shape = model.shape
    receivers = [og.Receiver("u", (TOP, x)) for x in range(edge, shape[1] - edge, 2)]
    return [
        og.Problem(
            "wave:4",
            shape,
            "float64",
            len(pulse),
            initial={"u": 0.0, "c": model},
            boundary={"kind": "sponge", "width": layer, "y-": "odd"},
            sources=[og.Source("u", (TOP, x), pulse)],
            receivers=receivers,
        )
        for x in np.linspace(edge, shape[1] - edge, count)
    ]


def record(model, out, **options):
    """What the receivers see of each shot."""
    problems = enumerate(shots(model))
    given = {"progress": False} | options
    return [og.run(one, out=Path(out) / f"data.{n}", **given).traces for n, one in problems]


def invert(observed, model, out, iterations=12, **options):
    """The model after some iterations, and the misfit at each evaluation."""
    objectives = [og.LeastSquares(traces) for traces in observed]
    problems = shots(model, len(observed))
    misfit = og.Misfit(problems, objectives, wrt=["c"], out=Path(out) / "search", **options)
    known = np.indices(model.shape)[0].ravel() < TOP + 3  # next to sources and receivers
    first, _ = misfit(misfit.start)

    def scaled(flat):
        value, slope = misfit(flat)
        return value / first, np.where(known, 0, slope) / first

    limits = {"maxiter": iterations, "maxcor": 8}
    bounds = [(0.8 * SLOW, 1.2 * FAST)] * model.size
    found = minimize(
        scaled, misfit.start, jac=True, method="L-BFGS-B", bounds=bounds, options=limits
    )
    return found.x.reshape(model.shape), misfit.values


if __name__ == "__main__":
    from command import arguments, beside

    given = arguments(__doc__, iterations={"type": int, "default": 25, "help": "of L-BFGS"})
    out = given.out or Path("inversion")
    observed = record(truth(), out, memory=given.memory)
    found, values = invert(observed, start(), out, given.iterations, memory=given.memory)
    before, after = (np.abs(model - truth()).mean() for model in (start(), found))
    print(
        f"{len(values)} evaluations: the misfit falls by a factor of {values[0] / values[-1]:.3g},"
        f" the error of the model by {before / after:.3g}"
    )
    if given.picture:
        models = {"start": start(), "found": found, "truth": truth()}
        speeds = {title: np.sqrt(model) for title, model in models.items()}
        scale = {"vmin": np.sqrt(SLOW), "vmax": np.sqrt(FAST)}
        beside(speeds, given.picture, "speed in cells per step", (9, 2.7), **scale)
