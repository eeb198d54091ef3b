"""Rates of memory and caches: one loop over working sets from a part of L2 to beyond all caches.

The loop is `target[i] = 0.5 * source[i]`, target and source each half of the working set, every
core with a set of its own and all at once. It counts three lines for each line of results: the one
read, the one of the target that is fetched because a part of it is about to be written, and the one
written back. That is how plans count the bytes of an update. A processor that recognises whole
lines and does not fetch them appears faster than its bus by as much as three to two.
"""

from __future__ import annotations

import ctypes
import statistics

import msgspec

from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.headers import included
from outgrid.machine import Machine
from outgrid.native import TEAM_ADDRESS, Buffer
from outgrid.probe.caches import Point
from outgrid.probe.effort import Effort

ITEM_BYTES = 8
LINES_MOVED = 3  # read, fetched for writing, written back
SMALLEST_SET_BYTES = 128 << 10
# Beyond this the rate of memory is looked for in one set, the largest.
LARGEST_CURVE_BYTES = 64 << 20

SOURCE = (
    f"""
#include <chrono>
{included("cpu/team.hpp")}"""
    + r"""
namespace {
__attribute__((noinline)) void scale(double* __restrict target, const double* __restrict source,
                                     std::int64_t cells) {
  for (std::int64_t i = 0; i < cells; ++i) target[i] = 0.5 * source[i];
  asm volatile("" ::: "memory");
}
}  // namespace

// Memory that was never written is one page of zeroes, read from cache. Each thread writes its own
// part, so that it lies near the thread.
extern "C" int outgrid_touch(const Team* team, double* base, std::int64_t stride, int threads) {
  if (const int error = start(team, threads)) return error;
  together(team, threads, [&](std::int64_t thread) {
    double* part = base + thread * stride;
    for (std::int64_t i = 0; i < stride; ++i) part[i] = 1.0;
  });
  return 0;
}

// Each thread sweeps its own `cells` results `passes` times; 0 where fewer threads ran.
extern "C" int outgrid_scale(const Team* team, double* base, std::int64_t stride,
                             std::int64_t cells, std::int64_t passes, int threads,
                             double* seconds) {
  using Clock = std::chrono::steady_clock;
  int ran = 0;
  if (start(team, threads) != 0) return 0;
  together(team, threads, [&](std::int64_t thread) {
    double* target = base + thread * stride;
    const double* source = target + cells;
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
    scale(target, source, cells);
    meet(team, threads);
    const auto begin = Clock::now();
    for (std::int64_t pass = 0; pass < passes; ++pass) scale(target, source, cells);
    seconds[thread] = std::chrono::duration<double>(Clock::now() - begin).count();
  });
  return ran == threads;
}
"""
)


class MemoryRates(msgspec.Struct, frozen=True):
    """`bandwidth` of all cores from memory, and a core's rate against its working set."""

    bandwidth: float
    samples: tuple[float, ...]
    curve: tuple[Point, ...]


def measure_memory(machine: Machine, effort: Effort) -> MemoryRates:
    """Medians of `effort.rounds` rounds. Raises BuildError where nothing can be compiled."""
    library = build(SOURCE, find_compiler()).handle
    room = min(effort.memory_bytes or machine.memory_bytes, machine.memory_bytes // 2)
    share = room // machine.cores // 4096 * 4096
    # Twice each core's part of the largest cache leaves nothing from one pass to the next.
    largest = min(share, max(128 << 20, 2 * machine.l3_bytes // machine.cores))
    sizes = working_sets(min(largest, LARGEST_CURVE_BYTES))
    buffer = Buffer(largest * machine.cores)
    try:
        loop = _Loop(library, buffer, machine.cores, largest // ITEM_BYTES)
        rates: dict[int, list[float]] = {size: [] for size in sizes}
        totals: list[float] = []
        for _ in range(effort.rounds):
            for size in sizes:
                rates[size] += loop.rates(size, effort.pass_bytes)
            totals.append(machine.cores * min(loop.rates(largest, effort.pass_bytes)))
    finally:
        buffer.release()
    return MemoryRates(
        bandwidth=statistics.median(totals),
        samples=tuple(totals),
        curve=tuple(Point(size, statistics.median(rates[size])) for size in sizes),
    )


def working_sets(largest_bytes: int) -> tuple[int, ...]:
    """Sizes of working sets in bytes, half an octave apart, whole pages."""
    sizes = [min(SMALLEST_SET_BYTES, largest_bytes)]
    while (size := int(sizes[0] * 2 ** (len(sizes) / 2))) <= largest_bytes:
        sizes.append(size // 4096 * 4096)
    return tuple(sizes)


class _Loop:
    """The compiled loop over one buffer; core n works from n * `stride` cells on."""

    def __init__(self, library: ctypes.CDLL, buffer: Buffer, cores: int, stride: int) -> None:
        self._run = library.outgrid_scale
        self._run.argtypes = [
            *[ctypes.c_void_p] * 2,
            *[ctypes.c_int64] * 3,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        self._address, self._cores, self._stride = buffer.address, cores, stride
        touch = library.outgrid_touch
        touch.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_int]
        if touch(TEAM_ADDRESS, buffer.address, stride, cores):
            raise RuntimeError(f"{cores} threads could not be started")
        self._seconds = (ctypes.c_double * cores)()

    def rates(self, set_bytes: int, pass_bytes: int) -> list[float]:
        """Bytes per second of each core, over sets of `set_bytes`."""
        cells = set_bytes // ITEM_BYTES // 2
        moved = LINES_MOVED * ITEM_BYTES * cells
        passes = max(1, round(pass_bytes / moved))
        if not self._run(
            TEAM_ADDRESS,
            self._address,
            self._stride,
            cells,
            passes,
            self._cores,
            ctypes.byref(self._seconds),
        ):
            raise RuntimeError(f"fewer than {self._cores} threads started")
        return [passes * moved / max(seconds, 1e-9) for seconds in self._seconds]
