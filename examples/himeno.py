"""The Himeno benchmark: Jacobi sweeps for the pressure of an incompressible flow, 14 arrays.

Checked: the residual of the third step is what the reference code (version 3.0 of its C program)
prints for its sizes XS, S and M, if squares are added up as there: in single precision, one by
one. In double precision the residual of M is 2 % less, there and here.
"""

import numpy as np

import outgrid as og

SIZES = {
    "XS": (32, 32, 64),
    "S": (64, 64, 128),
    "M": (128, 128, 256),
    "L": (256, 256, 512),
    "XL": (512, 512, 1024),
    "XXL": (1024, 1024, 2048),
}
PRINTED = {"XS": 6.227474e-03, "S": 3.288628e-03, "M": 1.733593e-03}  # after 3 steps
NAMES = ("a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1", "c2")
VALUES = dict(zip(NAMES, (1, 1, 1, 1 / 6, 0, 0, 0, 1, 1, 1), strict=True))


@og.stencil(ndim=3)
def himeno(p, residual, a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, source, inside, *, omega=0.8):
    """One Jacobi step with general coefficients; 34 operations per cell."""
    s = a0 * p[1, 0, 0] + a1 * p[0, 1, 0] + a2 * p[0, 0, 1]
    s = s + b0 * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
    s = s + b1 * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
    s = s + b2 * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
    s = s + c0 * p[-1, 0, 0] + c1 * p[0, -1, 0] + c2 * p[0, 0, -1] + source
    change = (s * a3 - p) * inside
    return {"p": p + omega * change, "residual": change}


def problem(size="S", steps=3):
    """The benchmark's initial values: pressure from 0 to 1 along the first axis."""
    initial = {"p": "z**2 / (nz - 1)**2", "residual": 0.0, "source": 0.0, "inside": 1.0} | VALUES
    return og.Problem(himeno, SIZES[size], "float32", steps, initial=initial)


def squared(residual):
    """The sum of squares, plane by plane, in double precision."""
    return sum(float(np.sum(np.square(plane, dtype=np.float64))) for plane in residual)


def squared_in_turn(residual):
    """The sum of squares in single precision, each one added to those before."""
    total = np.float32(0)
    for plane in residual:
        squares = np.square(plane, dtype=np.float32).ravel()
        total = np.add.accumulate(np.concatenate([[total], squares]), dtype=np.float32)[-1]
    return float(total)


def draw(result, path):
    """Pressure in the middle, from wall to wall."""
    from matplotlib import pyplot

    pressure = result["p"]
    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    shown = axes.imshow(pressure[:, pressure.shape[1] // 2], origin="lower", cmap="viridis")
    axes.set(xlabel="x", ylabel="z")
    figure.colorbar(shown, label="pressure")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"choices": list(SIZES), "default": "S", "help": "the benchmark's name of a size"},
        steps={"type": int, "default": 3, "help": "Jacobi sweeps"},
    )
    result = run(problem(given.size, given.steps), given)
    print(f"residual {squared(result['residual']):.6e}")
    if given.steps == 3 and given.size in PRINTED:
        single = squared_in_turn(result["residual"])
        print(
            f"in single precision {single:.6e}, the reference code prints {PRINTED[given.size]:.6e}"
        )
    if given.picture:
        draw(result, given.picture)
