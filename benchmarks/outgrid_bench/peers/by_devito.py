"""Devito, all in memory: its optimising compiler with OpenMP and its autotuning."""

# pyright: basic, reportMissingImports=false

import json
import os
import sys
import time

os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
os.environ.setdefault("DEVITO_LOGGING", "ERROR")

import devito
import numpy as np


def main() -> None:
    """Step the problem of the JSON file that is named."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    start = np.load(problem["start"])
    # A spacing of one, so that the second differences are those of the other programs.
    extent = tuple(n - 1 for n in start.shape)
    grid = devito.Grid(shape=start.shape, extent=extent, dtype=start.dtype.type)
    u = devito.TimeFunction(name="u", grid=grid, time_order=1, space_order=2)
    k = devito.Constant(name="k", dtype=start.dtype.type, value=problem["k"])
    step = devito.Eq(u.forward, u + k * u.laplace, subdomain=grid.interior)
    operator = devito.Operator([step])
    u.data[:] = start
    # Tuning runs on copies of the data; afterwards the values are those of the start.
    operator.apply(time_m=0, time_M=1, autotune=problem["tuning"])
    u.data[:] = start
    begin = time.perf_counter()
    operator.apply(time_m=0, time_M=problem["steps"] - 1, autotune=False)
    seconds = time.perf_counter() - begin
    np.save(problem["answer"], np.asarray(u.data[problem["steps"] % 2]))
    json.dump({"seconds": seconds, "version": devito.__version__}, sys.stdout)


if __name__ == "__main__":
    main()
