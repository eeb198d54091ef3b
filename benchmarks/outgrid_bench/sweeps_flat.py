"""Sweeps in C of stencils that compute much in each cell, most of them in two dimensions.

What two cells share, such as the flow through the face between them, is made once for both.
"""

from __future__ import annotations

from outgrid_bench.mask import weights

__all__ = ["FLAT", "MASKS", "SMOOTHING"]

FLAT = r"""
// What flows from a cell to the next one, by the depth of both.
static inline REAL flow(REAL h, REAL other, REAL eta, REAL next) {
  const REAL shallow = h < other ? h : other;
  return (shallow > 0 ? h + other : 0) * (next - eta);
}

// In place of the level before, which is read once. Flows along y are kept from row to row.
extern "C" void shallow_water(REAL* const* a, const REAL* w, int64_t, int64_t ny, int64_t nx,
                              int64_t pitch) {
  const REAL factor = w[0] * w[1] * w[1] / (2 * w[2] * w[2]);
  const REAL *eta = a[0], *h = a[2];
#pragma omp parallel
  {
    REAL* const along = new REAL[2 * nx];
    REAL* const across = along + nx;
    const int64_t self = omp_get_thread_num(), threads = omp_get_num_threads(), rows = ny - 2;
    const int64_t begin = 1 + rows * self / threads, end = 1 + rows * (self + 1) / threads;
    for (int64_t y = begin - 1; y < end; ++y) {
      const REAL *p = eta + y * pitch, *d = h + y * pitch;
      REAL* __restrict to = a[1] + y * pitch;
      if (y >= begin)
        for (int64_t x = 0; x < nx - 1; ++x) along[x] = flow(d[x], d[x + 1], p[x], p[x + 1]);
#pragma GCC ivdep
      for (int64_t x = 1; x < nx - 1; ++x) {
        const REAL up = flow(d[x], d[x + pitch], p[x], p[x + pitch]);
        if (y >= begin)
          to[x] = 2 * p[x] - to[x] + factor * ((along[x] - along[x - 1]) + (up - across[x]));
        across[x] = up;
      }
    }
    delete[] along;
  }
}

extern "C" void gray_scott(REAL* const* a, const REAL* w, int64_t, int64_t ny, int64_t nx,
                           int64_t pitch) {
  const REAL spread_u = w[0], spread_v = w[1], feed = w[2], kill = w[3], dt = w[4];
#pragma omp parallel
  {
    REAL* const line = new REAL[2 * nx];
    REAL* const other = line + nx;
#pragma omp for schedule(dynamic, 16)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const REAL *u = a[0] + y * pitch, *v = a[2] + y * pitch;
      for (int64_t x = 1; x < nx - 1; ++x) {
        const REAL reaction = u[x] * v[x] * v[x];
        const REAL lu = (u[x - 1] + u[x + 1]) + (u[x - pitch] + u[x + pitch]) - 4 * u[x];
        const REAL lv = (v[x - 1] + v[x + 1]) + (v[x - pitch] + v[x + pitch]) - 4 * v[x];
        line[x] = u[x] + dt * (spread_u * lu - reaction + feed * (1 - u[x]));
        other[x] = v[x] + dt * (spread_v * lv + reaction - (feed + kill) * v[x]);
      }
      stream(a[1] + y * pitch + 1, line + 1, nx - 2);
      stream(a[3] + y * pitch + 1, other + 1, nx - 2);
    }
    delete[] line;
  }
}
"""

SMOOTHING = r"""
#include <math.h>

#include <vector>

// The library of C has its exponential for vectors as well.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
extern "C" __attribute__((simd("notinbranch"))) double exp(double) noexcept;
extern "C" __attribute__((simd("notinbranch"))) float expf(float) noexcept;
#endif
static inline float decay(float a) { return expf(a); }
static inline double decay(double a) { return exp(a); }

// What flows through the face between p and its neighbour `face` on, by the gradient there.
static inline REAL through(const REAL* p, int64_t face, int64_t side, int64_t other, REAL factor) {
  const REAL along = p[face] - p[0];
  const REAL one = REAL(0.25) * ((p[side] - p[-side]) + (p[face + side] - p[face - side]));
  const REAL two = REAL(0.25) * ((p[other] - p[-other]) + (p[face + other] - p[face - other]));
  return decay(factor * (along * along + one * one + two * two)) * along;
}

// Three flows in each cell and not six: those upward are kept for the plane above, in blocks of
// rows, those along y for the next row.
extern "C" void perona_malik(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                             int64_t pitch) {
  const REAL dt = w[0], factor = REAL(-0.5) / (w[1] * w[1]);
  const int64_t Y = nx, Z = pitch, rows = 16, blocks = (ny - 2 + rows - 1) / rows;
#pragma omp parallel
  {
    std::vector<REAL> space((rows + 4) * nx);
    REAL *const below = space.data(), *const line = below + rows * nx;
    REAL *const along = line + nx, *const across = along + nx, *const up = across + nx;
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t y0 = 1 + block * rows, y1 = y0 + rows < ny - 1 ? y0 + rows : ny - 1;
      for (int64_t z = 0; z < nz - 1; ++z)
        for (int64_t y = z == 0 ? y0 : y0 - 1; y < y1; ++y) {
          const REAL* p = a[0] + z * Z + y * Y;
          REAL* const under = below + (y - y0) * nx;
          if (y < y0) {  // the flow into the first row of the block
#pragma omp simd
            for (int64_t x = 1; x < nx - 1; ++x) across[x] = through(p + x, Y, Z, 1, factor);
            continue;
          }
          if (z == 0) {  // the flow into the first plane
#pragma omp simd
            for (int64_t x = 1; x < nx - 1; ++x) under[x] = through(p + x, Z, Y, 1, factor);
            continue;
          }
#pragma omp simd
          for (int64_t x = 1; x < nx - 1; ++x) up[x] = through(p + x, Z, Y, 1, factor);
          along[0] = through(p, 1, Y, Z, factor);
#pragma omp simd
          for (int64_t x = 1; x < nx - 1; ++x) along[x] = through(p + x, 1, Y, Z, factor);
#pragma omp simd
          for (int64_t x = 1; x < nx - 1; ++x) {
            const REAL on = through(p + x, Y, Z, 1, factor);
            line[x] = p[x] + dt * ((up[x] - under[x]) + (on - across[x]) +
                                   (along[x] - along[x - 1]));
            across[x] = on;
            under[x] = up[x];
          }
          stream(a[1] + z * Z + y * Y + 1, line + 1, nx - 2);
        }
    }
  }
}
"""

_MASK = r"""
#if defined(__AVX512F__)
enum { kMaskLanes = 64 / sizeof(REAL), kMaskVectors = 4 };
#elif defined(__AVX__)
enum { kMaskLanes = 32 / sizeof(REAL), kMaskVectors = 2 };
#else
enum { kMaskLanes = 16 / sizeof(REAL), kMaskVectors = 2 };
#endif
enum { kMaskRows = 4 };
typedef REAL Near __attribute__((vector_size(kMaskLanes * sizeof(REAL)), aligned(4), may_alias));
typedef REAL Sum __attribute__((vector_size(kMaskLanes * sizeof(REAL))));

// Rows [First, Last) of sums take what row `from` is to them.
template <int Side, int First, int Last>
static inline __attribute__((always_inline)) void taps(Sum (&sums)[kMaskRows][kMaskVectors],
                                                       const REAL* from, const REAL* weights) {
  for (int k = 0; k < Side; ++k) {
    Sum v[kMaskVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kMaskVectors; ++n) v[n] = *(const Near*)(from + k + n * kMaskLanes);
#pragma GCC unroll 4
    for (int j = First; j < Last; ++j) {
      const REAL weight = weights[-j * Side + k];
#pragma GCC unroll 4
      for (int n = 0; n < kMaskVectors; ++n) sums[j][n] += weight * v[n];
    }
  }
}

// Four rows of four vectors advance together: each loaded vector serves four rows.
template <int Side>
static void masked(REAL* const* a, const REAL* weights, int64_t ny, int64_t nx, int64_t pitch) {
  constexpr int reach = Side / 2, wide = kMaskVectors * kMaskLanes;
  auto rest = [&](int64_t y, int64_t x0) {
    for (int64_t x = x0; x < nx - reach; ++x) {
      REAL sum = 0;
      for (int64_t k = 0; k < Side * Side; ++k)
        sum += weights[k] * a[0][(y + k / Side - reach) * pitch + x + k % Side - reach];
      a[1][y * pitch + x] = sum;
    }
  };
#pragma omp parallel for schedule(static)
  for (int64_t y0 = reach; y0 < ny - reach; y0 += kMaskRows) {
    int64_t x = reach;
    if (y0 + kMaskRows <= ny - reach && nx - 2 * reach >= wide)
      for (; x < nx - reach; x += wide) {
        x = x + wide <= nx - reach ? x : nx - reach - wide;  // the last ones once more
        Sum sums[kMaskRows][kMaskVectors] = {};
        const REAL* from = a[0] + (y0 - reach) * pitch + x - reach;
        taps<Side, 0, 1>(sums, from, weights);
        taps<Side, 0, 2>(sums, from + pitch, weights + Side);
        taps<Side, 0, 3>(sums, from + 2 * pitch, weights + 2 * Side);
        for (int64_t k = 3; k < Side; ++k)
          taps<Side, 0, 4>(sums, from + k * pitch, weights + k * Side);
        taps<Side, 1, 4>(sums, from + Side * pitch, weights + Side * Side);
        taps<Side, 2, 4>(sums, from + (Side + 1) * pitch, weights + (Side + 1) * Side);
        taps<Side, 3, 4>(sums, from + (Side + 2) * pitch, weights + (Side + 2) * Side);
        for (int j = 0; j < kMaskRows; ++j)
          for (int n = 0; n < kMaskVectors; ++n)
            *(Near*)(a[1] + (y0 + j) * pitch + x + n * kMaskLanes) = sums[j][n];
      }
    for (int64_t y = y0; y < y0 + kMaskRows && y < ny - reach; ++y) rest(y, x);
  }
}
"""


def _of_side(side: int) -> str:
    numbers = ", ".join(f"REAL({weight!r})" for weight in weights(side // 2).values())
    return f"""
extern "C" void mask{side}(REAL* const* a, const REAL*, int64_t, int64_t ny, int64_t nx,
                           int64_t pitch) {{
  static const REAL weights[] = {{{numbers}}};
  masked<{side}>(a, weights, ny, nx, pitch);
}}
"""


MASKS = _MASK + "".join(_of_side(side) for side in (3, 15))
