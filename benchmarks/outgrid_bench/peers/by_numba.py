"""Numba, all in memory: a parallel loop nest, compiled before it is timed."""

# pyright: basic, reportMissingImports=false

import json
import sys
import time

import numba
import numpy as np


@numba.njit(parallel=True, fastmath=True)
def sweep(a, b, k):
    """One step from `a` into `b`."""
    nz, ny, nx = a.shape
    for z in numba.prange(1, nz - 1):
        for y in range(1, ny - 1):
            for x in range(1, nx - 1):
                near = (a[z, y, x - 1] + a[z, y, x + 1]) + (a[z, y - 1, x] + a[z, y + 1, x])
                near += a[z - 1, y, x] + a[z + 1, y, x]
                b[z, y, x] = a[z, y, x] + k * (near - 6 * a[z, y, x])


def main() -> None:
    """Step the problem of the JSON file that is named."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    a = np.load(problem["start"])
    b = a.copy()
    k = a.dtype.type(problem["k"])
    small = np.zeros((4, 4, 4), a.dtype)
    sweep(small, small.copy(), k)
    begin = time.perf_counter()
    for _ in range(problem["steps"]):
        sweep(a, b, k)
        a, b = b, a
    seconds = time.perf_counter() - begin
    np.save(problem["answer"], a)
    json.dump({"seconds": seconds, "version": numba.__version__}, sys.stdout)


if __name__ == "__main__":
    main()
