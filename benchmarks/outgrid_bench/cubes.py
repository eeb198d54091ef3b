"""heat7 in blocks of space and time between memory and caches, in C as the paper has it.

A block is copied with a halo of ``depth`` cells into two small buffers, stepped ``depth`` times
while its halo shrinks, and its core is copied to the other grid: what halos overlap is computed
again. Blocks are cut along z, y and x. Either each thread has a block of its own, small enough for
a cache; or one block after the other is stepped by all threads, in tiles of space.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.native import Buffer, as_array
from outgrid_bench.openmp import built_with_openmp

__all__ = ["Blocking", "Cubes", "repeated"]

K = 0.1
SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <omp.h>

namespace {
using Index = std::int64_t;
struct Box {
  Index low[3], high[3];
};

// One step of a box, in coordinates of the grid, of buffers that begin at `origin`.
void step(const double* __restrict in, double* __restrict out, const Box& box,
          const Index* origin, Index row, Index plane, double k) {
  for (Index z = box.low[0]; z < box.high[0]; ++z)
    for (Index y = box.low[1]; y < box.high[1]; ++y) {
      const Index first = (z - origin[0]) * plane + (y - origin[1]) * row - origin[2];
      const double* __restrict p = in + first;
      double* __restrict q = out + first;
      for (Index x = box.low[2]; x < box.high[2]; ++x)
        q[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - row] + p[x + row]) +
                           (p[x - plane] + p[x + plane]) - 6.0 * p[x]);
    }
}

// Cells of a buffer that lie on a face of the grid stay as they are, in both buffers.
void faces(const double* in, double* out, const Box& held, const Index* extents, Index row,
           Index plane) {
  const Index count = held.high[2] - held.low[2];
  for (Index z = held.low[0]; z < held.high[0]; ++z)
    for (Index y = held.low[1]; y < held.high[1]; ++y) {
      const Index at = (z - held.low[0]) * plane + (y - held.low[1]) * row;
      if (z == 0 || z == extents[0] - 1 || y == 0 || y == extents[1] - 1) {
        std::memcpy(out + at, in + at, sizeof(double) * count);
        continue;
      }
      if (held.low[2] == 0) out[at] = in[at];
      if (held.high[2] == extents[2]) out[at + count - 1] = in[at + count - 1];
    }
}
}  // namespace

// `depth` steps from `source` to `target` in blocks. `memory` has two buffers of `room` cells for
// each thread, or for all where `together`.
extern "C" void outgrid_cubes(const double* source, double* target, const Index* extents,
                              const Index* edges, Index depth, const Index* tile, int together,
                              double* memory, Index room, double k, int threads) {
  Index count[3];
  for (int a = 0; a < 3; ++a) count[a] = (extents[a] - 2 + edges[a] - 1) / edges[a];
  const Index grid_row = extents[2], grid_plane = extents[1] * extents[2];
  const auto block = [&](Index number, Box& core, Box& held) {
    const Index at[3] = {number / (count[1] * count[2]), number / count[2] % count[1],
                         number % count[2]};
    for (int a = 0; a < 3; ++a) {
      core.low[a] = 1 + at[a] * edges[a];
      core.high[a] = std::min(core.low[a] + edges[a], extents[a] - 1);
      held.low[a] = std::max<Index>(0, core.low[a] - depth);
      held.high[a] = std::min(extents[a], core.high[a] + depth);
    }
  };
  const auto grown = [&](const Box& core, Index left) {
    Box box;
    for (int a = 0; a < 3; ++a) {
      box.low[a] = std::max<Index>(1, core.low[a] - left);
      box.high[a] = std::min(extents[a] - 1, core.high[a] + left);
    }
    return box;
  };
  const Index every = count[0] * count[1] * count[2];
  const auto copy = [&](const Box& box, Index z0, Index z1, const double* from, double* to,
                        const Index* begin, Index row, Index plane, bool out) {
    const std::size_t nbytes = sizeof(double) * std::size_t(box.high[2] - box.low[2]);
    for (Index z = z0; z < z1; ++z)
      for (Index y = box.low[1]; y < box.high[1]; ++y) {
        const Index there = z * grid_plane + y * grid_row + box.low[2];
        const Index here = (z - begin[0]) * plane + (y - begin[1]) * row + box.low[2] - begin[2];
        if (out)
          std::memcpy(to + there, from + here, nbytes);
        else
          std::memcpy(to + here, from + there, nbytes);
      }
  };
  if (!together) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (Index number = 0; number < every; ++number) {
      double* a = memory + 2 * room * omp_get_thread_num();
      double* b = a + room;
      Box core, held;
      block(number, core, held);
      const Index row = held.high[2] - held.low[2];
      const Index plane = row * (held.high[1] - held.low[1]);
      copy(held, held.low[0], held.high[0], source, a, held.low, row, plane, false);
      faces(a, b, held, extents, row, plane);
      for (Index left = depth - 1; left >= 0; --left) {
        step(a, b, grown(core, left), held.low, row, plane, k);
        std::swap(a, b);
      }
      copy(core, core.low[0], core.high[0], a, target, held.low, row, plane, true);
    }
    return;
  }
  for (Index number = 0; number < every; ++number) {
    double *a = memory, *b = memory + room;
    Box core, held;
    block(number, core, held);
    const Index row = held.high[2] - held.low[2];
    const Index plane = row * (held.high[1] - held.low[1]);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Index z = held.low[0]; z < held.high[0]; ++z)
      copy(held, z, z + 1, source, a, held.low, row, plane, false);
    faces(a, b, held, extents, row, plane);
    for (Index left = depth - 1; left >= 0; --left) {
      const Box box = grown(core, left);
      Index tiles[3];
      for (int i = 0; i < 3; ++i) tiles[i] = (box.high[i] - box.low[i] + tile[i] - 1) / tile[i];
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(threads)
      for (Index z = 0; z < tiles[0]; ++z)
        for (Index y = 0; y < tiles[1]; ++y)
          for (Index x = 0; x < tiles[2]; ++x) {
            const Index at[3] = {z, y, x};
            Box part;
            for (int i = 0; i < 3; ++i) {
              part.low[i] = box.low[i] + at[i] * tile[i];
              part.high[i] = std::min(part.low[i] + tile[i], box.high[i]);
            }
            step(a, b, part, held.low, row, plane, k);
          }
      std::swap(a, b);
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Index z = core.low[0]; z < core.high[0]; ++z)
      copy(core, z, z + 1, a, target, held.low, row, plane, true);
  }
}

// One step of the whole grid in tiles of space.
extern "C" void outgrid_tiles(const double* source, double* target, const Index* extents,
                              const Index* tile, double k, int threads) {
  const Index origin[3] = {0, 0, 0};
  const Index rows = (extents[1] - 2 + tile[1] - 1) / tile[1];
  const Index planes = (extents[0] - 2 + tile[0] - 1) / tile[0];
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(threads)
  for (Index z = 0; z < planes; ++z)
    for (Index y = 0; y < rows; ++y)
      for (Index x = 1; x < extents[2] - 1; x += tile[2]) {
        Box box;
        const Index low[3] = {1 + z * tile[0], 1 + y * tile[1], x};
        for (int i = 0; i < 3; ++i) {
          box.low[i] = low[i];
          box.high[i] = std::min(low[i] + tile[i], extents[i] - 1);
        }
        step(source, target, box, origin, extents[2], extents[1] * extents[2], k);
      }
}
"""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Cubes of ``edge`` cells, ``depth`` steps each. ``tile`` is the edge of cubes that all threads
    step one after the other within a block; None: each thread has a block of its own. A depth of 0
    sweeps over the whole grid in cubes, step by step."""

    edge: int
    depth: int
    tile: int | None = None


def repeated(shape: tuple[int, int, int], blocking: Blocking) -> float:
    """Updates over needed ones: what halos overlap is made again."""
    total = 0
    for left in range(blocking.depth):
        made = 1
        for extent in shape:
            made *= sum(
                min(extent - 1, start + blocking.edge + left) - max(1, start - left)
                for start in range(1, extent - 1, blocking.edge)
            )
        total += made
    needed = blocking.depth
    for extent in shape:
        needed *= extent - 2
    return total / needed


class Cubes:
    """One grid in memory, twice, which begins with the same values each time."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        cells = int(np.prod(shape))
        self._first = np.random.default_rng(5).random(shape)
        self._grids = [as_array(Buffer(8 * cells), np.float64, count=cells) for _ in range(2)]

    def run(self, blocking: Blocking, steps: int, threads: int) -> tuple[float, int]:
        """Seconds for so many steps, and a checksum of the grid that they leave.

        Raises UsageError where the steps are no multiple of the depth.
        """
        depth = blocking.depth or 1
        if steps % depth:
            raise UsageError(f"{steps} steps are no multiple of {depth}")
        for grid in self._grids:
            grid[...] = self._first.ravel()
        held = [min(extent, blocking.edge + 2 * depth) for extent in self.shape]
        room, together = int(np.prod(held)), blocking.tile is not None
        size = 0 if not blocking.depth else 2 * room * (1 if together else threads)
        memory = as_array(Buffer(max(8, 8 * size)), np.float64)
        memory[...] = 0  # the system gives its pages before the clock starts
        indices = ctypes.c_int64 * 3
        extents, edges = indices(*self.shape), indices(*[blocking.edge] * 3)
        tile = indices(*[blocking.tile or blocking.edge] * 3)
        library = _library()  # compiles
        begin = time.perf_counter()
        for _ in range(steps // depth):
            source, target = (grid.ctypes.data for grid in self._grids)
            if not blocking.depth:
                library.outgrid_tiles(source, target, extents, tile, K, threads)
            else:
                library.outgrid_cubes(
                    *(source, target, extents, edges, depth, tile, together),
                    *(memory.ctypes.data, room, K, threads),
                )
            self._grids.reverse()
        seconds = time.perf_counter() - begin
        return seconds, _checksum(self._grids[0])


def _checksum(values: NDArray[np.float64]) -> int:
    words = values.view(np.uint64)
    return int(np.bitwise_xor.reduce(words)) ^ int(words.sum(dtype=np.uint64))


@cache
def _library() -> ctypes.CDLL:
    library = built_with_openmp(SOURCE)
    whole, real, pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    triple = ctypes.POINTER(whole)
    library.outgrid_cubes.argtypes = [pointer, pointer, triple, triple, whole, triple, ctypes.c_int]
    library.outgrid_cubes.argtypes += [pointer, whole, real, ctypes.c_int]
    library.outgrid_tiles.argtypes = [pointer, pointer, triple, triple, real, ctypes.c_int]
    return library
