"""Sweeps in C as a careful programmer writes them, one for each stencil that has one.

Each makes one step: it is given the arrays of the problem's fields in their order and the
parameters. Fields whose neighbours are read have two arrays, now and next (or the level before,
which the new one replaces), those that are updated in place have one. ``pitch`` are the cells from
plane to plane, in two dimensions from row to row.
Rows are written past the caches where nothing is read back: what would be fetched only to be
written over is a third of what ``heat7`` moves.
"""

SWEEPS = r"""
#include <omp.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

// Copies a row past the caches: whole vectors by streamed stores, the ends as usual.
static inline void stream(REAL* to, const REAL* from, int64_t n) {
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
  typedef __m512i Vector;
#else
  typedef __m256i Vector;
#endif
  const int64_t lanes = sizeof(Vector) / sizeof(REAL);
  int64_t i = 0;
  for (; i < n && (uintptr_t)(to + i) % sizeof(Vector); ++i) to[i] = from[i];
  for (; i + lanes <= n; i += lanes) {
#if defined(__AVX512F__)
    _mm512_stream_si512((Vector*)(to + i), _mm512_loadu_si512(from + i));
#else
    _mm256_stream_si256((Vector*)(to + i), _mm256_loadu_si256((const Vector*)(from + i)));
#endif
  }
  for (; i < n; ++i) to[i] = from[i];
#else
  memcpy(to, from, n * sizeof(REAL));
#endif
}

// The same row of N planes, from which p and q are on: (N + 2) / N planes are read for each that is
// written. ``lines`` has room for N rows of ``width`` cells.
template <int N>
static inline void heat7_rows(const REAL* p, REAL* q, REAL k, int64_t nx, int64_t pitch,
                              REAL* lines, int64_t width) {
#pragma omp simd
  for (int64_t x = 1; x < nx - 1; ++x) {
    REAL mid[N + 2];
    for (int r = 0; r < N + 2; ++r) mid[r] = p[(r - 1) * pitch + x];
    for (int r = 0; r < N; ++r) {
      const REAL* const at = p + r * pitch + x;
      lines[r * width + x] = mid[r + 1] + k * ((at[-1] + at[1]) + (at[-nx] + at[nx]) +
                                               (mid[r] + mid[r + 2]) - 6 * mid[r + 1]);
    }
  }
  for (int r = 0; r < N; ++r) stream(q + r * pitch + 1, lines + r * width + 1, nx - 2);
}

extern "C" void heat7(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                      int64_t pitch) {
  const int64_t jammed = 4, groups = (nz - 2 + jammed - 1) / jammed;
  const int64_t width = nx + 64 / (int64_t)sizeof(REAL);  // no power of two
#pragma omp parallel
  {
    REAL* const lines = new REAL[jammed * width];
#pragma omp for collapse(2) schedule(dynamic, 64)
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t y = 1; y < ny - 1; ++y) {
        const REAL* const p = a[0] + y * nx;
        REAL* const q = a[1] + y * nx;
        int64_t z = 1 + group * jammed;
        if (z + jammed <= nz - 1)
          heat7_rows<jammed>(p + z * pitch, q + z * pitch, w[0], nx, pitch, lines, width);
        else
          for (; z < nz - 1; ++z)
            heat7_rows<1>(p + z * pitch, q + z * pitch, w[0], nx, pitch, lines, width);
      }
    delete[] lines;
  }
}

extern "C" void heat5(REAL* const* a, const REAL* w, int64_t, int64_t ny, int64_t nx,
                      int64_t pitch) {
  const REAL k = w[0];
#pragma omp parallel
  {
    REAL* const line = new REAL[nx];
#pragma omp for schedule(dynamic, 16)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const REAL* p = a[0] + y * pitch;
      for (int64_t x = 1; x < nx - 1; ++x)
        line[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - pitch] + p[x + pitch]) - 4 * p[x]);
      stream(a[1] + y * pitch + 1, line + 1, nx - 2);
    }
    delete[] line;
  }
}

// Writes in[x] + (out[x - 1] + out[x + 1]) past the caches.
static inline void stream_sums(REAL* to, const REAL* in, const REAL* out, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
  typedef __m512i Vector;
#else
  typedef __m256i Vector;
#endif
  typedef REAL Lanes __attribute__((vector_size(sizeof(Vector)), aligned(sizeof(REAL)), may_alias));
  const int64_t lanes = sizeof(Vector) / sizeof(REAL);
  for (; i < n && (uintptr_t)(to + i) % sizeof(Vector); ++i)
    to[i] = in[i] + (out[i - 1] + out[i + 1]);
  for (; i + lanes <= n; i += lanes) {
    const Lanes sums = *(const Lanes*)(in + i) +
                       (*(const Lanes*)(out + i - 1) + *(const Lanes*)(out + i + 1));
#if defined(__AVX512F__)
    _mm512_stream_si512((Vector*)(to + i), (Vector)sums);
#else
    _mm256_stream_si256((Vector*)(to + i), (Vector)sums);
#endif
  }
#endif
  for (; i < n; ++i) to[i] = in[i] + (out[i - 1] + out[i + 1]);
}

// Columns at once, so that all rows between the two loops fit the first level, with room to spare.
static const int64_t kColumns = 256;

// The same row of N planes, from which p and q are on. What is read of a plane serves the planes
// beside it: (N + 2) / N planes come from memory for each that is written, and the sum of the rows
// beside one is made once. Column by column: the two outer columns of a cell are one sum, made once
// for both.
template <int N>
static inline void box27_rows(const REAL* p, REAL* q, const REAL* w, int64_t nx, int64_t pitch) {
  const REAL c0 = w[0], c1 = w[1], c2 = w[2], c3 = w[3];
  REAL inner[N][kColumns], outer[N][kColumns];
  for (int64_t first = 0; first < nx - 2; first += kColumns - 2) {
    const int64_t n = nx - first < kColumns ? nx - first : kColumns;
#pragma omp simd
    for (int64_t x = 0; x < n; ++x) {
      REAL mid[N + 2], beside[N + 2];
      for (int r = 0; r < N + 2; ++r) {
        const REAL* const at = p + (r - 1) * pitch + first + x;
        mid[r] = at[0];
        beside[r] = at[-nx] + at[nx];
      }
      for (int r = 0; r < N; ++r) {
        const REAL cross = beside[r + 1] + (mid[r] + mid[r + 2]);
        const REAL corners = beside[r] + beside[r + 2];
        inner[r][x] = c0 * mid[r + 1] + c1 * cross + c2 * corners;
        outer[r][x] = c1 * mid[r + 1] + c2 * cross + c3 * corners;
      }
    }
    for (int r = 0; r < N; ++r)
      stream_sums(q + r * pitch + first + 1, inner[r] + 1, outer[r] + 1, n - 2);
  }
}

extern "C" void box27(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                      int64_t pitch) {
  const int64_t jammed = 6, groups = (nz - 2 + jammed - 1) / jammed;
#pragma omp parallel for collapse(2) schedule(dynamic, 64)
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const REAL* const p = a[0] + y * nx;
      REAL* const q = a[1] + y * nx;
      int64_t z = 1 + group * jammed;
      if (z + jammed <= nz - 1)
        box27_rows<jammed>(p + z * pitch, q + z * pitch, w, nx, pitch);
      else
        for (; z < nz - 1; ++z) box27_rows<1>(p + z * pitch, q + z * pitch, w, nx, pitch);
    }
}

// In place of the level before, which is read once: nothing to write past the caches.
extern "C" void wave8(REAL* const* a, const REAL*, int64_t nz, int64_t ny, int64_t nx,
                      int64_t pitch) {
  const REAL w[] = {REAL(-205.0 / 72), REAL(1.6), REAL(-0.2), REAL(8.0 / 315), REAL(-1.0 / 560)};
#pragma omp parallel for collapse(2) schedule(dynamic, 16)
  for (int64_t z = 4; z < nz - 4; ++z)
    for (int64_t y = 4; y < ny - 4; ++y) {
      const int64_t row = z * pitch + y * nx;
      const REAL *p = a[0] + row, *c = a[2] + row;
      REAL* __restrict q = a[1] + row;
#pragma GCC ivdep
      for (int64_t x = 4; x < nx - 4; ++x) {
        REAL sum = 3 * w[0] * p[x];
        for (int64_t r = 1; r <= 4; ++r)
          sum += w[r] * (((p[x - r] + p[x + r]) + (p[x - r * nx] + p[x + r * nx])) +
                         (p[x - r * pitch] + p[x + r * pitch]));
        q[x] = 2 * p[x] - q[x] + c[x] * sum;
      }
    }
}

extern "C" void himeno(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                       int64_t pitch) {
  const REAL omega = w[0];
#pragma omp parallel
  {
    REAL *const line = new REAL[2 * nx], *const changes = line + nx;
#pragma omp for collapse(2) schedule(dynamic, 16)
    for (int64_t z = 1; z < nz - 1; ++z)
      for (int64_t y = 1; y < ny - 1; ++y) {
        const int64_t row = z * pitch + y * nx;
        const REAL *p = a[0] + row, *below = p - pitch, *above = p + pitch;
        const REAL *a0 = a[3] + row, *a1 = a[4] + row, *a2 = a[5] + row, *a3 = a[6] + row;
        const REAL *b0 = a[7] + row, *b1 = a[8] + row, *b2 = a[9] + row;
        const REAL *c0 = a[10] + row, *c1 = a[11] + row, *c2 = a[12] + row;
        const REAL *source = a[13] + row, *inside = a[14] + row;
        for (int64_t x = 1; x < nx - 1; ++x) {
          REAL s = a0[x] * above[x] + a1[x] * p[x + nx] + a2[x] * p[x + 1];
          s += b0[x] * (above[x + nx] - above[x - nx] - below[x + nx] + below[x - nx]);
          s += b1[x] * (p[x + nx + 1] - p[x - nx + 1] - p[x + nx - 1] + p[x - nx - 1]);
          s += b2[x] * (above[x + 1] - below[x + 1] - above[x - 1] + below[x - 1]);
          s += c0[x] * below[x] + c1[x] * p[x - nx] + c2[x] * p[x - 1] + source[x];
          changes[x] = (s * a3[x] - p[x]) * inside[x];
          line[x] = p[x] + omega * changes[x];
        }
        stream(a[1] + row + 1, line + 1, nx - 2);
        stream(a[2] + row + 1, changes + 1, nx - 2);
      }
    delete[] line;
  }
}
"""
