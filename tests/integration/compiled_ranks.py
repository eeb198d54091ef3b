"""What each rank of `test_compilers.py` does: one run in halos and one in seams.

mpiexec -n 3 python compiled_ranks.py FOLDER
"""

import sys
from pathlib import Path

import outgrid as og


@og.stencil
def mixed(u, v, c, *, k):
    """What compilers like to change: products to fuse, a division, a root, sums to reorder."""
    far = u + v[1, 0, -1] + k * v - u.previous[0, 1, 0]
    return {
        "u": u + k * c * og.laplacian(u) + far / (3 + v * v),
        "v": og.sqrt(og.absolute(v)) + k * (u[-1, 1, 0] * v + u[0, 0, 1] * c[0, 1, 0]),
    }


def problem(dtype: str) -> og.Problem:
    """A small one whose cells are all different."""
    initial = {"u": "sin(x + 2*y + 3*z)", "v": "cos(x*y - z)", "c": "0.1 + 0.01 * x"}
    return og.Problem(mixed, (48, 11, 37), dtype, 7, {"k": 0.1}, initial=initial)


def main(folder: Path) -> None:
    """Run both."""
    for exchange in ("halos", "seams"):
        out = folder / exchange
        og.run(problem("float32"), memory="1GiB", threads=1, depth=2, exchange=exchange, out=out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
