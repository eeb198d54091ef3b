"""Numba over two files mapped by numpy.memmap: the system's pages carry the grid."""

# pyright: basic, reportMissingImports=false

import json
import shutil
import sys
import time
from pathlib import Path

import numba
import numpy as np
from by_numba import sweep


def main() -> None:
    """Step the problem of the JSON file that is named."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    paths = [Path(problem["folder"]) / f"mapped-{i}.npy" for i in (0, 1)]
    for path in paths:
        shutil.copyfile(problem["start"], path)
    a, b = (np.load(path, mmap_mode="r+") for path in paths)
    k = a.dtype.type(problem["k"])
    small = np.zeros((4, 4, 4), a.dtype)
    sweep(small, small.copy(), k)
    # Views as plain arrays: Numba compiles for memmap as for any other, but once more.
    current, following = a.view(np.ndarray), b.view(np.ndarray)
    begin = time.perf_counter()
    for _ in range(problem["steps"]):
        sweep(current, following, k)
        current, following = following, current
    a.flush()
    b.flush()
    seconds = time.perf_counter() - begin
    paths[problem["steps"] % 2].rename(problem["answer"])
    json.dump({"seconds": seconds, "version": numba.__version__}, sys.stdout)


if __name__ == "__main__":
    main()
