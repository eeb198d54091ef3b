// A call of the kernel of one stencil: where each of its levels works.
#pragma once

#include "cpu/slab.hpp"
#include "cpu/vector.hpp"

namespace {

// One call, for the kernel of a stencil. See tests/unit/codegen/templates.cpp for what a `Stencil`
// has to have.
template <class Stencil>
struct Call : Slab {
  const typename Stencil::Uniform* uniform;  // of each level, from the first on
};

// How many planes behind the front a stage of level t works.
template <class Stencil>
OG_INLINE int64_t behind(const Call<Stencil>& s, int64_t t, int stage) {
  return Stencil::kShift[s.downward][stage] + s.skew * t;
}

// The planes and rows that level t of this trip may update.
template <class Stencil>
OG_INLINE int64_t first_plane(const Call<Stencil>& s, int64_t t, int stage) {
  return most(0, s.plane_low + s.plane_rise * t + s.plane_shifts[stage]);
}
template <class Stencil>
OG_INLINE int64_t end_plane(const Call<Stencil>& s, int64_t t, int stage) {
  return least(s.planes,
               s.plane_high + s.plane_fall * t + s.plane_shifts[Stencil::kStages + stage]);
}
template <class Stencil>
OG_INLINE int64_t first_row(const Call<Stencil>& s, int64_t t, int stage) {
  return Stencil::kAcrossColumns ? 0 : most(0, s.row_low + s.row_rise * t + s.row_shifts[stage]);
}
template <class Stencil>
OG_INLINE int64_t end_row(const Call<Stencil>& s, int64_t t, int stage) {
  if (Stencil::kAcrossColumns) return s.rows;
  return least(s.rows, s.row_high + s.row_fall * t + s.row_shifts[Stencil::kStages + stage]);
}

}  // namespace
