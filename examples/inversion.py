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
    shape, steps = model.shape, int(2.6 * sum(model.shape))
    t = np.arange(steps) - 24.0
    pulse = (1 - (t / 6) ** 2) * np.exp(-((t / 6) ** 2) / 2)
    edge = LAYER + 2
    columns = np.linspace(edge, shape[1] - edge, count)
    receivers = [og.Receiver("u", (TOP, x)) for x in range(edge, shape[1] - edge, 2)]
    return [
        og.Problem(
            "wave:4",
            shape,
            "float64",
            steps,
            initial={"u": 0.0, "c": model},
            boundary={"kind": "sponge", "width": LAYER, "y-": "odd"},
            sources=[og.Source("u", (TOP, x), pulse)],
            receivers=receivers,
        )
        for x in columns
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


def draw(models, path):
    """Models beside each other."""
    from matplotlib import pyplot

    figure, every = pyplot.subplots(1, len(models), figsize=(9, 2.7), layout="constrained")
    for axes, (title, model) in zip(every, models.items(), strict=True):
        shown = axes.imshow(np.sqrt(model), vmin=np.sqrt(SLOW), vmax=np.sqrt(FAST))
        axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown, label="speed in cells per step")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments

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
        draw({"start": start(), "found": found, "truth": truth()}, given.picture)
