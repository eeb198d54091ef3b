"""What a careful programmer writes by hand: a loop nest in C with OpenMP, and the memory's speed.

The plain sweep is only an honest baseline if it is as fast as this, so both run side by side on the
same grid. The compiler is the one that compiles kernels, with ``-O3 -march=native -fopenmp``, and
is free to contract and to vectorise as it likes.
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outgrid import Problem
from outgrid.errors import BuildError
from outgrid.native import Buffer, as_array
from outgrid.parts import InitialExpression, evaluate, find_compiler

__all__ = ["HAND_WRITTEN", "Bandwidth", "HandLoop", "memory_bandwidth", "peak_flops"]

HAND_WRITTEN = ("heat7", "heat5")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
SOURCE = r"""
#include <omp.h>
#include <stdint.h>

extern "C" void heat7(const REAL* __restrict a, REAL* __restrict b, int64_t nz, int64_t ny,
                      int64_t nx, REAL k) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t z = 1; z < nz - 1; ++z)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const REAL* p = a + (z * ny + y) * nx;
      REAL* q = b + (z * ny + y) * nx;
      for (int64_t x = 1; x < nx - 1; ++x)
        q[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - nx] + p[x + nx]) +
                           (p[x - nx * ny] + p[x + nx * ny]) - 6 * p[x]);
    }
}

extern "C" void heat5(const REAL* __restrict a, REAL* __restrict b, int64_t, int64_t ny,
                      int64_t nx, REAL k) {
#pragma omp parallel for schedule(static)
  for (int64_t y = 1; y < ny - 1; ++y) {
    const REAL* p = a + y * nx;
    REAL* q = b + y * nx;
    for (int64_t x = 1; x < nx - 1; ++x)
      q[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - nx] + p[x + nx]) - 4 * p[x]);
  }
}

// Chains of fused multiply-adds on each core, none of which waits for another: as many as hide
// their latency and leave registers for the two numbers that all share.
#if defined(__AVX512F__)
enum { kBytes = 64, kChains = 16 };
#elif defined(__AVX__)
enum { kBytes = 32, kChains = 12 };
#else
enum { kBytes = 16, kChains = 12 };
#endif
extern "C" int64_t chained() { return kChains * (kBytes / sizeof(REAL)); }
extern "C" REAL chains(int64_t rounds) {
  typedef REAL Vector __attribute__((vector_size(kBytes)));
  REAL total = 0;
#pragma omp parallel reduction(+ : total)
  {
    Vector sums[kChains];
    for (int c = 0; c < kChains; ++c)
      for (int i = 0; i < int(kBytes / sizeof(REAL)); ++i) sums[c][i] = REAL(c + i);
    const Vector factor = sums[0] * 0 + REAL(0.999), term = sums[1] * 0 + REAL(0.001);
    for (int64_t n = 0; n < rounds; ++n)
#pragma GCC unroll 16
      for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
    for (int c = 0; c < kChains; ++c) total += sums[c][0];
  }
  return total;
}

extern "C" int64_t threads() {
  int64_t found = 1;
#pragma omp parallel
#pragma omp single
  found = omp_get_num_threads();
  return found;
}

extern "C" void copy(const REAL* __restrict a, REAL* __restrict b, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) b[i] = a[i];
}

extern "C" void scale(const REAL* __restrict a, REAL* __restrict b, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) b[i] = REAL(3) * a[i];
}
"""
REALS = {
    "float64": ("double", ctypes.c_double),
    "float32": ("float", ctypes.c_float),
}
TRIALS = 3
PEAK_ROUNDS = 10_000_000


def compile_loops(dtype: str, place: Path) -> ctypes.CDLL:
    """The loops for one type, compiled in the folder ``place``. Raises BuildError."""
    compiler = find_compiler()
    source, library = place / f"hand-{dtype}.cpp", place / f"hand-{dtype}.so"
    source.write_text(SOURCE.replace("REAL", REALS[dtype][0]))
    command = (*compiler.command, *FLAGS, str(source), "-o", str(library))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"the hand-written loops did not compile.\n{done.stderr.strip()}",
            source_path=source,
            command=command,
        )
    return ctypes.CDLL(str(library))


class HandLoop:
    """Two arrays in huge pages with a problem's initial values, and the loop that steps them."""

    def __init__(self, problem: Problem, place: Path) -> None:
        """``problem`` is heat7 or heat5 with a formula as initial value."""
        self.problem = problem
        loops = compile_loops(problem.dtype, place)
        self._sweep = getattr(loops, problem.stencil.name)
        self._sweep.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3
        self._sweep.argtypes += [REALS[problem.dtype][1]]
        self._buffers = [Buffer(problem.field_bytes) for _ in range(2)]

    def run(self) -> tuple[float, np.ndarray]:
        """1e9 updates per second of all steps, and the result (valid until ``release``)."""
        problem = self.problem
        source = problem.initial["u"]
        if not isinstance(source, InitialExpression):
            raise TypeError(f"the initial value is {source!r}, not a formula")
        arrays = [
            as_array(buffer, problem.dtype, count=problem.cells).reshape(problem.shape)
            for buffer in self._buffers
        ]
        arrays[0][...] = evaluate(source, range(problem.shape[0]), problem.shape, problem.dtype)
        arrays[1][...] = arrays[0]
        addresses = [buffer.address for buffer in self._buffers]
        extents = (1, *problem.shape)[-3:]
        begin = time.perf_counter()
        for _ in range(problem.steps):
            self._sweep(*addresses, *extents, problem.parameters["k"])
            addresses.reverse()
        rate = problem.updates / (time.perf_counter() - begin) / 1e9
        return rate, arrays[problem.steps % 2]

    def release(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            buffer.release()


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """1e9 bytes per second that a loop reads and writes, without what caches fetch beside it."""

    copy: float
    scale: float


def memory_bandwidth(place: Path, nbytes: int = 1 << 28) -> Bandwidth:
    """Best of a few trials of copying and scaling ``nbytes`` of doubles."""
    loops = compile_loops("float64", place)
    buffers = [Buffer(nbytes) for _ in range(2)]
    for buffer in buffers:
        as_array(buffer, "float64", count=nbytes // 8)[...] = 1.0
    rates: dict[str, float] = {}
    for name in ("copy", "scale"):
        loop = getattr(loops, name)
        loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        fastest = float("inf")
        for _ in range(TRIALS):
            begin = time.perf_counter()
            loop(buffers[0].address, buffers[1].address, nbytes // 8)
            fastest = min(fastest, time.perf_counter() - begin)
        rates[name] = 2 * nbytes / fastest / 1e9
    for buffer in buffers:
        buffer.release()
    return Bandwidth(**rates)


def peak_flops(dtype: str, place: Path) -> float:
    """Multiplications and additions per second of all cores that do nothing else, best of three.

    In the longest vectors that the processor has.
    """
    loops = compile_loops(dtype, place)
    loops.chains.restype = REALS[dtype][1]
    loops.chains.argtypes = [ctypes.c_int64]
    loops.threads.restype = loops.chained.restype = ctypes.c_int64
    flops = 2 * loops.chained() * PEAK_ROUNDS * loops.threads()
    fastest = 0.0
    for _ in range(TRIALS):
        begin = time.perf_counter()
        loops.chains(PEAK_ROUNDS)
        fastest = max(fastest, flops / (time.perf_counter() - begin))
    return fastest
