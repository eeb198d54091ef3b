"""What a careful programmer writes by hand: a loop nest in C with OpenMP, and the memory's speed.

The plain sweep is only an honest baseline if it is as fast as this, so both run side by side on the
same grid, and ratios over the best are over the faster one. The compiler is the one that compiles
kernels, for the same processor, with ``-O3 -fopenmp``, and is free to contract and to vectorise as
it likes.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import platform
import subprocess
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from outgrid import Problem
from outgrid.errors import BuildError
from outgrid.native import Buffer, as_array
from outgrid.parts import InitialExpression, Stencil, evaluate, find_compiler, ring_count
from outgrid_bench.openmp import FLAG, loaded
from outgrid_bench.sweeps import SWEEPS
from outgrid_bench.sweeps_flat import FLAT, MASKS, SMOOTHING
from outgrid_bench.sweeps_lattice import LATTICE
from outgrid_bench.sweeps_staged import STAGED

__all__ = ["HAND_WRITTEN", "Bandwidth", "HandLoop", "HandWritten", "memory_bandwidth", "peak_flops"]


@dataclass(frozen=True, slots=True)
class HandWritten:
    """A loop by hand: its source, and the functions that make a step, in turns.

    ``mode`` is what its row is called. ``begin`` is called once before the first step. In place all
    fields have one array.
    """

    functions: tuple[str, ...]
    source: str = ""
    mode: str = "hand"
    begin: str | None = None
    in_place: bool = False


HAND_WRITTEN: dict[str, tuple[HandWritten, ...]] = {
    "heat7": (HandWritten(("heat7",)),),
    "heat5": (HandWritten(("heat5",)),),
    "box27": (HandWritten(("box27",)),),
    "wave:8": (HandWritten(("wave8",)),),
    "himeno": (HandWritten(("himeno",)),),
    "mask3": (HandWritten(("mask3",), MASKS),),
    "mask15": (HandWritten(("mask15",), MASKS),),
    "shallow": (HandWritten(("shallow_water",), FLAT),),
    "gray_scott": (HandWritten(("gray_scott",), FLAT),),
    "perona": (HandWritten(("perona_malik",), SMOOTHING),),
    "acoustic": (HandWritten(("acoustic_pml4",), STAGED),),
    "elastic": (HandWritten(("elastic4",), STAGED),),
    "maxwell": (HandWritten(("cavity",), STAGED),),
    "lbm19": (
        HandWritten(("lattice",), LATTICE, begin="lattice_begin"),
        HandWritten(
            ("lattice_across", "lattice_within"),
            LATTICE,
            "hand in place",
            "lattice_begin_in_place",
            in_place=True,
        ),
    ),
}
# Planes, and in two dimensions rows, are an odd number of sectors apart, and arrays begin so far
# apart, so that what is read together does not compete for the same sets of a cache.
SECTOR_BYTES, STAGGER_BYTES = 512, 10 << 10
GLIBC = ("x86_64", "glibc")  # where the library of C has functions of vectors
FLAGS = ("-O3", FLAG, "-fPIC", "-shared")
MACHINE = r"""
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


def compile_loops(dtype: str, place: Path, more: str = MACHINE) -> ctypes.CDLL:
    """The loops for one type and ``more``, compiled in the folder ``place``. Raises BuildError.

    For this processor, or the one that the command in ``$CXX`` names.
    """
    compiler = find_compiler()
    text = (SWEEPS + more).replace("REAL", REALS[dtype][0])
    name = f"hand-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    source, library = place / f"{name}.cpp", place / f"{name}.so"
    source.write_text(text)
    vectors = ("-lmvec",) if (platform.machine(), *platform.libc_ver()[:1]) == GLIBC else ()
    processor = (flag for flag in compiler.flags if flag.startswith("-march="))
    command = (*compiler.command, *FLAGS, *processor, str(source), "-o", str(library), *vectors)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"the hand-written loops did not compile.\n{done.stderr.strip()}",
            source_path=source,
            command=command,
        )
    return loaded(library)


class HandLoop:
    """Arrays in huge pages with a problem's initial values, and a loop that steps them."""

    def __init__(
        self, problem: Problem, stencil: Stencil, place: Path, written: HandWritten
    ) -> None:
        """``problem`` has formulas as initial values, and the stencil that ``written`` is for.

        That one is given as it was written: faces that absorb add profiles to that of the problem.
        """
        self.problem = problem
        loops = compile_loops(problem.dtype, place, written.source)
        self._steps = [getattr(loops, name) for name in written.functions]
        self._begin = getattr(loops, written.begin) if written.begin else None
        for function in (*self._steps, self._begin or self._steps[0]):
            function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4
        if problem.steps % len(self._steps):
            raise ValueError(f"{problem.steps} steps are no multiple of {len(self._steps)}")
        self._fields = [
            field
            for field in stencil.fields
            for _ in range(1 if written.in_place else ring_count(field, stencil))
        ]
        planes, *plane = problem.shape
        held, item = math.prod(plane), np.dtype(problem.dtype).itemsize
        sectors = -(-held * item // SECTOR_BYTES) | 1  # an odd number of them
        self._pitch = sectors * SECTOR_BYTES // item
        starts = [n * STAGGER_BYTES for n in range(len(self._fields))]
        self._buffers = [Buffer(planes * sectors * SECTOR_BYTES + start) for start in starts]
        self._arrays = [
            as_array(buffer, problem.dtype, offset_bytes=start, count=planes * self._pitch)
            .reshape(planes, self._pitch)[:, :held]
            .reshape(problem.shape)
            for buffer, start in zip(self._buffers, starts, strict=True)
        ]
        names = dict.fromkeys(profile.name for profile in stencil.profiles)
        self._profiles = [problem.profile_values(name) for name in names]

    def run(self) -> tuple[float, np.ndarray]:
        """1e9 updates per second of all steps, and the result (valid until ``release``)."""
        problem, real = self.problem, REALS[self.problem.dtype][1]
        for field, array in zip(self._fields, self._arrays, strict=True):
            source = problem.initial[field.name]
            if not isinstance(source, InitialExpression):
                raise TypeError(f"the initial value of {field.name} is {source!r}, not a formula")
            array[...] = evaluate(source, range(problem.shape[0]), problem.shape, problem.dtype)
        numbers = [problem.parameters[name] for name in problem.stencil.parameters]
        weights = (real * max(1, len(numbers)))(*numbers)
        order = [*range(len(self._arrays))]
        turned = list(order)  # arrays of now and next change places
        for at, (one, other) in enumerate(pairwise(self._fields)):
            if one is other:
                turned[at], turned[at + 1] = at + 1, at
        places = [array.ctypes.data for array in (*self._arrays, *self._profiles)]
        beside = places[len(order) :]
        given = [
            (ctypes.c_void_p * len(places))(*(places[at] for at in ways), *beside)
            for ways in (order, turned)
        ]
        extents = (*(1, *problem.shape)[-3:], self._pitch)
        if self._begin is not None:
            self._begin(given[0], weights, *extents)
        begin = time.perf_counter()
        for step in range(problem.steps):
            self._steps[step % len(self._steps)](given[step % 2], weights, *extents)
        rate = problem.updates / (time.perf_counter() - begin) / 1e9
        return rate, self._arrays[(order, turned)[problem.steps % 2][0]]

    def release(self) -> None:
        """Give the memory back."""
        self._arrays = []
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
