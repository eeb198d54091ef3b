// What looks at updated cells one by one: sources and receivers, and the watch for values that are
// not finite. A `Cell` is how the fields that are looked at are kept.
#pragma once

#include "cuda/slab.hpp"

// The plane z of those that are updated, or of those a period later.
OG_INLINE int64_t turned(const Slab& s, int64_t z) {
  return z + s.period < s.z1 ? z + s.period : z;
}

// Whether the stage updates a field, and cells of this type.
template <class Cell, class Stencil>
OG_INLINE bool updates(int stage, int64_t field) {
  return Stencil::writer(field) == stage && Stencil::cell_kind(field) == kKind<Cell>;
}

template <class Cell, class Stencil>
OG_INLINE Cell* plane_of(const Slab& s, int64_t field, int64_t z) {
  return static_cast<Cell*>(Stencil::plane_of(s, field, s.base + s.t, z));
}

template <class Cell, class Stencil>
OG_INLINE bool holds(const Slab& s, const int64_t* at, int stage) {
  const int64_t z = turned(s, at[1]);
  return updates<Cell, Stencil>(stage, at[0]) && z >= s.z0 && z < s.z1 && at[2] >= s.y0 &&
         at[2] < s.y1;
}

// Sources add to what was just made, then receivers look at it; one thread, in the given order.
template <class Cell, class Stencil>
OG_INLINE void points(const Slab& s, int stage) {
  for (int64_t n = 0; n < s.injections; ++n) {
    const int64_t* at = s.injected + 4 * n;
    if (!holds<Cell, Stencil>(s, at, stage)) continue;
    Cell* plane = plane_of<Cell, Stencil>(s, at[0], turned(s, at[1]));
    Cell& cell = plane[at[2] * s.row_stride + at[3]];
    cell = added(cell, s.amounts[n]);
  }
  for (int64_t n = 0; n < s.receptions; ++n) {
    const int64_t* at = s.sampled + 4 * n;
    if (!holds<Cell, Stencil>(s, at, stage)) continue;
    const Cell* plane = plane_of<Cell, Stencil>(s, at[0], turned(s, at[1]));
    s.samples[n] = plane[at[2] * s.row_stride + at[3]];
  }
}

// Notes the first value that is no finite number of what was just made, counted by level, stage,
// plane, row, column and field, and twice: infinite, or NaN.
template <class Cell, class Stencil>
OG_INLINE void watch(const Slab& s, int stage) {
  if constexpr (kIsWhole<Cell>) return;  // which are finite
  const Walk w = walk(s);
  if (!w.there || w.x < Stencil::kLowX || w.x >= s.columns - Stencil::kHighX) return;
  if (w.y < Stencil::kLowY || w.y >= s.rows - Stencil::kHighY) return;
  for (int64_t z = w.first; z < w.end; ++z) {
    // Fixed layers stay as they were; those of temporaries are never written.
    if (z < Stencil::kLowZ || z >= s.planes - Stencil::kHighZ) continue;
    for (int64_t field = 0; field < Stencil::kFields; ++field) {
      if (!updates<Cell, Stencil>(stage, field)) continue;
      const Cell value = plane_of<Cell, Stencil>(s, field, z)[w.y * s.row_stride + w.x];
      if (value - value == 0) continue;
      int64_t place = (s.t - 1) * Stencil::kStages + stage;
      place = place * s.planes + (s.period > 0 ? z % s.period : z);
      place = ((place * s.rows + w.y) * s.columns + w.x) * Stencil::kFields + field;
      atomicMin(s.broken, 2 * place + (value != value));
    }
  }
}
