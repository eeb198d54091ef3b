"""A loop in C with OpenMP, over files mapped into memory or over memory that may be swapped."""

# pyright: basic, reportIndexIssue=false, reportAttributeAccessIssue=false

import ctypes
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <stdint.h>
void sweep(const REAL* restrict a, REAL* restrict b, int64_t nz, int64_t ny, int64_t nx, REAL k) {
#pragma omp parallel for schedule(static, 4)
  for (int64_t z = 1; z < nz - 1; ++z)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const REAL* p = a + (z * ny + y) * nx;
      REAL* q = b + (z * ny + y) * nx;
      for (int64_t x = 1; x < nx - 1; ++x)
        q[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - nx] + p[x + nx]) +
                           (p[x - nx * ny] + p[x + nx * ny]) - 6 * p[x]);
    }
}
"""
REALS = {"float64": ("double", ctypes.c_double), "float32": ("float", ctypes.c_float)}


def compiled(folder: Path, dtype: str):
    """The loop as a function."""
    real, scalar = REALS[dtype]
    source, library = folder / "sweep.c", folder / "sweep.so"
    source.write_text(SOURCE.replace("REAL", real))
    flags = ("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).sweep
    function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [scalar]
    function.restype = None
    return function


def main() -> None:
    """Step the problem of the JSON file that is named; "swap" as second word maps no file."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    folder, mapped = Path(problem["folder"]), sys.argv[2:] != ["swap"]
    sweep = compiled(folder, problem["dtype"])
    paths = [folder / f"mapped-{i}.npy" for i in (0, 1)]
    if mapped:
        for path in paths:
            shutil.copyfile(problem["start"], path)
        arrays = [np.load(path, mmap_mode="r+") for path in paths]
    else:
        start = np.load(problem["start"], mmap_mode="r")
        arrays = [np.empty(start.shape, start.dtype) for _ in range(2)]
        for array in arrays:
            for plane, values in zip(array, start, strict=True):
                plane[...] = values
    begin = time.perf_counter()
    for step in range(problem["steps"]):
        a, b = arrays[step % 2], arrays[(step + 1) % 2]
        sweep(a.ctypes.data, b.ctypes.data, *a.shape, problem["k"])
    if mapped:
        for array in arrays:
            array.flush()
    seconds = time.perf_counter() - begin
    if mapped:
        paths[problem["steps"] % 2].rename(problem["answer"])
    else:
        np.save(problem["answer"], arrays[problem["steps"] % 2])
    json.dump({"seconds": seconds, "version": "cc -O3 -march=native -fopenmp"}, sys.stdout)


if __name__ == "__main__":
    main()
