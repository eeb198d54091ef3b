// Several levels in one launch. A block has a tile of columns and rows and walks along the planes:
// it makes plane z of level j + 1 when plane z + kLag of level j has come. Threads keep their own
// columns in registers; planes in which cells beside them are read are shared by the block. With
// each level kReach cells more at the edges of the tile are wrong; these are not stored. Along z
// updates read planes from z - kBelow to z + kAbove.
//
// Blocks one behind the other along z share the planes of a slab. The first of them finds what the
// slab before left of the levels between; others make these planes again.
#pragma once

#include "cuda/slab.hpp"

// The value of the thread so many columns on, of those of a warp; any where there is none.
OG_INLINE Real of_lane(Real a, int column) {
  return column > 0 ? __shfl_down_sync(~0u, a, column) : __shfl_up_sync(~0u, a, -column);
}

// Where a row lies of the planes between slabs: so many planes `below` the end of a level.
template <class Stencil>
OG_INLINE int64_t border_row(const Slab& s, int level, int field, int64_t below, int64_t y) {
  const int64_t part = ((level - 1) * Stencil::kUpdated + field) * Stencil::kBetween + below - 1;
  return (part * s.rows + y) * s.row_stride;
}

// Results come to the places of these planes while blocks still read them, so they are copied: to
// `came` before the levels of a slab are made, and from `left` to their places afterwards.
template <class Stencil>
OG_INLINE void copy_borders(const Slab& s) {
  const int64_t x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t y = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
  if (x >= s.columns || y >= s.rows) return;
  for (int level = 1; level < Stencil::kLevels; ++level) {
    const int64_t end = s.leaving ? s.high[level] : s.low[level];
    const int64_t next = s.leaving ? s.high[level + 1] : s.low[level + 1];
    if (s.leaving && next == s.planes) continue;  // the next level is complete
    for (int field = 0; field < Stencil::kUpdated; ++field) {
      const int64_t lowest = next - Stencil::below(field);
      for (int64_t z = lowest > 0 ? lowest : 0; z < end; ++z) {
        const int64_t copied = border_row<Stencil>(s, level, field, end - z, y) + x;
        Real* const plane = Stencil::updated_plane(s, field, s.base + s.t + level - 1, z);
        Real& cell = plane[y * s.row_stride + x];
        if (s.leaving) {
          cell = s.left[copied];
        } else {
          s.came[copied] = cell;
        }
      }
    }
  }
}

OG_INLINE int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

// With `kSlabs` the slab is one of several, which begin and end at other planes in every level.
template <class Stencil, bool kSlabs>
OG_INLINE void make_levels(const Slab& s) {
  constexpr int K = Stencil::kLevels, E = Stencil::kUpdated, R = Stencil::kRows;
  constexpr int kReach = Stencil::kReach, kHalo = K * kReach, kLag = Stencil::kLag;
  constexpr int kAbove = Stencil::kAbove, kBelow = Stencil::kBelow;
  constexpr int kBetween = Stencil::kBetween, kNewest = kBelow + kLag;
  constexpr int kFar = kAbove > kBelow ? kAbove : kBelow;
  constexpr int kFirst = Stencil::kFirst, kLast = Stencil::kLast, kSlots = Stencil::kSlots;
  constexpr int kAcross = Stencil::kAcross, kHeight = Stencil::kDown * R;
  constexpr int kPlane = kAcross * kHeight, kGuard = kReach * (kAcross + 1);
  const int column = threadIdx.x, row = threadIdx.y * R;
  OG_SHARED(Real, tile);
  Real* const shared = tile + kGuard + row * kAcross + column;
  const int64_t x = int64_t(blockIdx.x) * (kAcross - 2 * kHalo) - kHalo + column;
  const int64_t y = int64_t(blockIdx.y) * (kHeight - 2 * kHalo) - kHalo + row;
  const typename Stencil::Uniform u = Stencil::Uniform::of(s.parameters);
  const int64_t before = s.base + s.t - 1;  // the level that is read

  bool there[R], inner[R], mine[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    there[r] = x >= 0 && x < s.columns && y + r >= 0 && y + r < s.rows;
    inner[r] = x >= Stencil::kLowX && x < s.columns - Stencil::kHighX && y + r >= Stencil::kLowY &&
               y + r < s.rows - Stencil::kHighY;
    mine[r] = there[r] && column >= kHalo && column < kAcross - kHalo && row + r >= kHalo &&
              row + r < kHeight - kHalo;
  }

  const int64_t first = s.low[K] + int64_t(blockIdx.z) * s.deep;
  const int64_t end = first + s.deep < s.high[K] ? first + s.deep : s.high[K];
  const bool foremost = blockIdx.z == 0, hindmost = end == s.high[K];
  const int64_t lowest = foremost ? s.low[1] - kBelow : first - K * kFar;
  const int64_t begin = lowest > 0 ? lowest : 0;
  const int64_t last = hindmost ? s.planes : least_of(end + K * kFar, s.planes);

  Real own[K][E][kNewest + 1][R], coming[E][R];
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int f = 0; f < E; ++f)
#pragma unroll
      for (int d = 0; d <= kNewest; ++d)
#pragma unroll
        for (int r = 0; r < R; ++r) own[j][f][d][r] = 0;

  const auto fetch = [&](int64_t z) {
#pragma unroll
    for (int f = 0; f < E; ++f) {
      const bool known =
          !kSlabs || (z >= s.low[1] - Stencil::below(f) && z < s.high[1] + Stencil::above(f));
      const Real* const at = known && z < last ? Stencil::updated_plane(s, f, before, z) : nullptr;
#pragma unroll
      for (int r = 0; r < R; ++r)
        coming[f][r] = at && there[r] ? at[(y + r) * s.row_stride + x] : Real(0);
    }
  };
  fetch(begin);

  for (int64_t i = begin; i < end + kLag * K; ++i) {
    Real made[E][R];
#pragma unroll
    for (int f = 0; f < E; ++f)
#pragma unroll
      for (int r = 0; r < R; ++r) made[f][r] = coming[f][r];
    fetch(i + 1);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int64_t z = i - kLag * (j + 1);
      const int64_t more = (K - 1 - j) * kFar;  // planes that the levels after this one need
      const int64_t low = !foremost ? first - more : kSlabs ? s.low[j + 1] : 0;
      const int64_t complete = kSlabs ? s.high[j + 1] : s.planes;
      const int64_t high = hindmost ? complete : least_of(end + more, complete);
      const bool inside =
          z >= low && z >= Stencil::kLowZ && z < high && z < s.planes - Stencil::kHighZ;
      Real* const planes = shared + j * (E * kSlots * kPlane);
      const Real* beside[E][kLast - kFirst + 1];
      bool updated[R];
#pragma unroll
      for (int r = 0; r < R; ++r) updated[r] = inner[r] && inside;
#pragma unroll
      for (int f = 0; f < E; ++f) {
#pragma unroll
        for (int d = kFirst; d <= kLast; ++d)
          beside[f][d - kFirst] = planes + (f * kSlots + (int(i + d) & (kSlots - 1))) * kPlane;
#pragma unroll
        for (int r = 0; r < R; ++r) own[j][f][kNewest][r] = made[f][r];
      }
      Stencil::make(s, u, x, y, z, updated, own[j], beside, made);
#pragma unroll
      for (int f = 0; f < E; ++f) {
        Real* const next = planes + (f * kSlots + (int(i + kLast + 1) & (kSlots - 1))) * kPlane;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (!updated[r]) made[f][r] = own[j][f][kBelow][r];
          next[r * kAcross] = own[j][f][kBelow + kLast + 1][r];
        }
#pragma unroll
        for (int d = 0; d < kNewest; ++d)
#pragma unroll
          for (int r = 0; r < R; ++r) own[j][f][d][r] = own[j][f][d + 1][r];
      }
      if (!kSlabs || j + 1 == K) continue;
      if (foremost && z < low) {
        const int64_t below = low - z;
#pragma unroll
        for (int f = 0; f < E; ++f)
#pragma unroll
          for (int r = 0; r < R; ++r)
            made[f][r] = below <= kBetween && z >= 0 && there[r]
                             ? s.came[border_row<Stencil>(s, j + 1, f, below, y + r) + x]
                             : Real(0);
      }
      if (hindmost && s.high[j + 2] < s.planes && z < high && z >= high - kBetween) {
#pragma unroll
        for (int f = 0; f < E; ++f)
#pragma unroll
          for (int r = 0; r < R; ++r)
            if (mine[r]) s.left[border_row<Stencil>(s, j + 1, f, high - z, y + r) + x] = made[f][r];
      }
    }
    const int64_t z = i - kLag * K;
    if (z >= first && z < end) {
#pragma unroll
      for (int f = 0; f < E; ++f) {
        Real* const plane = Stencil::updated_plane(s, f, before + K, z);
#pragma unroll
        for (int r = 0; r < R; ++r)
          if (mine[r]) plane[(y + r) * s.row_stride + x] = made[f][r];
      }
    }
    __syncthreads();
  }
}
