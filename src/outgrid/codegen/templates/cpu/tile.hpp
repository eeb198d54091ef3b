// Parts of a plane, and what is done to them without computing.
#pragma once

#include <cstring>

#include "cpu/vector.hpp"

namespace {

// Rows [y0, y1) and columns [x0, x1) of a plane; x0 and x1 are multiples of kLanes, or the end.
// Where rows are folded all of these lie between whole vectors, or are the end.
struct Tile {
  int64_t y0, y1, x0, x1;
};

// The first cell of a tile in the rows that begin with the first of them, and how many there are
// from it to the end of its last column: of folded rows whole vectors.
OG_INLINE int64_t begin_of(const Tile& c) { return c.x0 * kFold; }
OG_INLINE int64_t count_of(const Tile& c) {
  if constexpr (kFold == 1) return c.x1 - c.x0;
  return ((c.x1 + kAcross - 1) / kAcross * kAcross - c.x0) * kFold;
}

// How rows meet the caches. While they are updated, what the same rows will be the first to read in
// the next step of the front, so many planes `ahead`, is fetched (0: nothing is), and rows as far
// `beyond` them as the stencil reaches, below (-1) or above (1). Where a diamond `begins`, so is
// what is written over. What is updated out of place may be stored `past` the caches.
struct Way {
  int64_t ahead = 0, beyond = 0;
  bool begins = false, past = false;
};

// Cells outside the interior keep their value: copied from level to level like an update.
template <class Cell>
OG_INLINE void keep(Cell* to, const Cell* from, int64_t stride, const Tile& c) {
  for (int64_t y = c.y0; y < c.y1; y += kFold) {
    const int64_t at = y * stride + begin_of(c);
    std::memcpy(to + at, from + at, static_cast<size_t>(count_of(c)) * sizeof(Cell));
  }
}

// Cells of a temporary outside the interior are 0.
template <class Cell>
OG_INLINE void clear(Cell* to, int64_t stride, const Tile& c) {
  for (int64_t y = c.y0; y < c.y1; y += kFold) {
    std::memset(to + y * stride + begin_of(c), 0, static_cast<size_t>(count_of(c)) * sizeof(Cell));
  }
}

// Whether columns [left, right) of the row that begins `at` cells on are all +0, bit by bit.
template <class Cell>
OG_INLINE bool empty(const Cell* plane, int64_t at, int64_t left, int64_t right) {
  typedef M Bits __attribute__((aligned(1), may_alias));
  const char* from = reinterpret_cast<const char*>(plane + at + left);
  const char* const to = reinterpret_cast<const char*>(plane + at + right);
  constexpr int64_t size = sizeof(M);
  for (; from + size <= to; from += size) {
    if (any(*reinterpret_cast<const Bits*>(from) != 0)) return false;
  }
  for (; from < to; ++from) {
    if (*from != 0) return false;
  }
  return true;
}

// Fetches a line into the second level.
template <class Cell>
OG_INLINE void fetch_line(const Cell* at) {
  __builtin_prefetch(at, 0, 2);
}

// Fetches the lines by which an edge of columns moves from level to level, `Slope` cells, `Far`
// cells beyond it.
template <int Side, int64_t Slope, int64_t Far, class Cell>
OG_INLINE void fetch(const Cell* edge) {
  constexpr int64_t line = 64 / sizeof(Cell), beyond = (Far + line - 1) / line * line;
  for (int64_t n = 0; n < Slope; n += line) {
    __builtin_prefetch(edge + n + (Side < 0 ? -beyond : beyond - Slope));
  }
}

}  // namespace
