"""The Himeno benchmark: Jacobi sweeps for the pressure of an incompressible flow, 14 arrays.

Checked: the residual of the last step is that of the reference code, whose sums in single
precision are good for three digits. Sizes are those of its C version.
"""

import sys

import numpy as np

import outgrid as og

SIZES = {"XS": (32, 32, 64), "S": (64, 64, 128), "M": (128, 128, 256), "L": (256, 256, 512)}
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


if __name__ == "__main__":
    size = sys.argv[1] if len(sys.argv) > 1 else "S"
    result = og.run(problem(size), memory="256MiB", out=f"himeno-{size}")
    print(f"{size}: residual {squared(result['residual']):.6e}")
