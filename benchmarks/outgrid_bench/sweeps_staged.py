"""Sweeps in C of stencils of several stages, which a careful programmer fuses.

While rows of the first stage are made in one plane, those of the last are made some planes behind,
where all is there that they read and all has been read that they write over. So each array comes
from memory once in a step. One barrier for each plane keeps the threads together.

After the arrays of the fields come those of the profiles, in the order in which they are read.
"""

__all__ = ["STAGED"]

STAGED = r"""
// Derivatives half a cell on and half a cell back: of fourth order unless weights are given.
struct Weights {
  REAL near, far;
};
constexpr Weights kFourth{REAL(9.0 / 8), REAL(-1.0 / 24)};
constexpr Weights kFit{REAL(1.1160254037844386), REAL(-0.03867513459481292)};
static inline REAL ahead(const REAL* p, int64_t d, Weights w = kFourth) {
  return w.near * (p[d] - p[0]) + w.far * (p[2 * d] - p[-d]);
}
static inline REAL back(const REAL* p, int64_t d, Weights w = kFourth) {
  return w.near * (p[0] - p[-d]) + w.far * (p[d] - p[-2 * d]);
}
static inline REAL second(const REAL* p, int64_t d) {
  return REAL(-5.0 / 2) * p[0] + REAL(4.0 / 3) * (p[-d] + p[d]) +
         REAL(-1.0 / 12) * (p[-2 * d] + p[2 * d]);
}

// Velocities z, y, x; stresses xx, xy, xz, yy, yz, zz; light, stiff, shear; tapers z, y, x.
extern "C" void elastic4(REAL* const* a, const REAL*, int64_t nz, int64_t ny, int64_t nx,
                         int64_t pitch) {
  const int64_t Y = nx, Z = pitch;
  const REAL *taper_z = a[12], *taper_y = a[13], *taper_x = a[14];
#pragma omp parallel
  for (int64_t z = 2; z < nz - 2 + 3; ++z) {
#pragma omp for schedule(static)
    for (int64_t y = 2; y < ny - 2; ++y) {
      if (z < nz - 2) {
        const int64_t row = z * Z + y * Y;
        REAL *vz = a[0] + row, *vy = a[1] + row, *vx = a[2] + row;
        const REAL *xx = a[3] + row, *xy = a[4] + row, *xz = a[5] + row;
        const REAL *yy = a[6] + row, *yz = a[7] + row, *zz = a[8] + row, *light = a[9] + row;
        const REAL taper = taper_z[z] * taper_y[y];
#pragma GCC ivdep
        for (int64_t x = 2; x < nx - 2; ++x) {
          const REAL damp = taper * taper_x[x], l = light[x];
          const REAL pz = ahead(zz + x, Z) + back(yz + x, Y) + back(xz + x, 1);
          const REAL py = back(yz + x, Z) + ahead(yy + x, Y) + back(xy + x, 1);
          const REAL px = back(xz + x, Z) + back(xy + x, Y) + ahead(xx + x, 1);
          vz[x] = damp * (vz[x] + l * pz);
          vy[x] = damp * (vy[x] + l * py);
          vx[x] = damp * (vx[x] + l * px);
        }
      }
      if (z >= 2 + 3) {
        const int64_t row = (z - 3) * Z + y * Y;
        const REAL *vz = a[0] + row, *vy = a[1] + row, *vx = a[2] + row;
        REAL *xx = a[3] + row, *xy = a[4] + row, *xz = a[5] + row;
        REAL *yy = a[6] + row, *yz = a[7] + row, *zz = a[8] + row;
        const REAL *stiff = a[10] + row, *shear = a[11] + row;
        const REAL taper = taper_z[z - 3] * taper_y[y];
#pragma GCC ivdep
        for (int64_t x = 2; x < nx - 2; ++x) {
          const REAL damp = taper * taper_x[x], m = shear[x];
          const REAL rz = back(vz + x, Z), ry = back(vy + x, Y), rx = back(vx + x, 1);
          const REAL spread = stiff[x] * (rz + ry + rx);
          xx[x] = damp * (xx[x] + (spread + 2 * m * rx));
          yy[x] = damp * (yy[x] + (spread + 2 * m * ry));
          zz[x] = damp * (zz[x] + (spread + 2 * m * rz));
          xy[x] = damp * (xy[x] + m * (ahead(vx + x, Y) + ahead(vy + x, 1)));
          xz[x] = damp * (xz[x] + m * (ahead(vx + x, Z) + ahead(vz + x, 1)));
          yz[x] = damp * (yz[x] + m * (ahead(vy + x, Z) + ahead(vz + x, Y)));
        }
      }
    }
  }
}

// What the memories of an axis keep and take is 0 outside of the layers, and so are they: only rows
// and columns near a layer read or make them. The columns without any are [begin, end).
struct Columns {
  int64_t begin, end;
  Columns(const REAL* one, const REAL* other, int64_t n) : begin(n / 2), end(n / 2) {
    while (begin > 0 && one[begin - 1] == 0 && other[begin - 1] == 0) --begin;
    while (end < n && one[end] == 0 && other[end] == 0) ++end;
  }
};
template <bool kZ, bool kY, bool kX>
static inline void slopes(const REAL* p, REAL* sz, REAL* sy, REAL* sx, int64_t Z, int64_t Y,
                          REAL keep_z, REAL take_z, REAL keep_y, REAL take_y, const REAL* keep_x,
                          const REAL* take_x, int64_t begin, int64_t end) {
  if (!kZ && !kY && !kX) return;
#pragma GCC ivdep
  for (int64_t x = begin; x < end; ++x) {
    if (kZ) sz[x] = keep_z * sz[x] + take_z * ahead(p + x, Z, kFit);
    if (kY) sy[x] = keep_y * sy[x] + take_y * ahead(p + x, Y, kFit);
    if (kX) sx[x] = keep_x[x] * sx[x] + take_x[x] * ahead(p + x, 1, kFit);
  }
}
template <bool kZ, bool kY, bool kX>
static inline void bends(const REAL* p, REAL* q, const REAL* c, const REAL* sz, const REAL* sy,
                         const REAL* sx, REAL* bz, REAL* by, REAL* bx, int64_t Z, int64_t Y,
                         REAL keep_z, REAL take_z, REAL keep_y, REAL take_y, const REAL* keep_x,
                         const REAL* take_x, int64_t begin, int64_t end) {
#pragma GCC ivdep
  for (int64_t x = begin; x < end; ++x) {
    REAL tz = second(p + x, Z), ty = second(p + x, Y), tx = second(p + x, 1);
    if (kZ) tz += back(sz + x, Z, kFit), bz[x] = keep_z * bz[x] + take_z * tz, tz += bz[x];
    if (kY) ty += back(sy + x, Y, kFit), by[x] = keep_y * by[x] + take_y * ty, ty += by[x];
    if (kX) tx += back(sx + x, 1, kFit), bx[x] = keep_x[x] * bx[x] + take_x[x] * tx, tx += bx[x];
    q[x] = 2 * p[x] - q[x] + c[x] * (tz + ty + tx);
  }
}
// Calls the function of the axes that have memories here.
#define WITH_MEMORIES(function, z, y, x, ...)                                              \
  switch ((z) * 4 + (y) * 2 + (x)) {                                                       \
    case 0: function<false, false, false>(__VA_ARGS__); break;                             \
    case 1: function<false, false, true>(__VA_ARGS__); break;                              \
    case 2: function<false, true, false>(__VA_ARGS__); break;                              \
    case 3: function<false, true, true>(__VA_ARGS__); break;                               \
    case 4: function<true, false, false>(__VA_ARGS__); break;                              \
    case 5: function<true, false, true>(__VA_ARGS__); break;                               \
    case 6: function<true, true, false>(__VA_ARGS__); break;                               \
    default: function<true, true, true>(__VA_ARGS__);                                      \
  }

// Pressure now and before, c; memories of slopes z, y, x and of bends z, y, x; for each axis z, y,
// x what slopes keep and take, then for each axis what bends keep and take.
extern "C" void acoustic_pml4(REAL* const* a, const REAL*, int64_t nz, int64_t ny, int64_t nx,
                              int64_t pitch) {
  const int64_t Y = nx, Z = pitch;
  REAL* const* const weights = a + 9;
  const Columns without(weights[5], weights[11], nx);
  auto near = [](const REAL* half, const REAL* full, int64_t i) {
    return half[i - 2] != 0 || half[i - 1] != 0 || half[i] != 0 || half[i + 1] != 0 || full[i] != 0;
  };
#pragma omp parallel
  for (int64_t z = 2; z < nz - 2 + 2; ++z) {
#pragma omp for schedule(static)
    for (int64_t y = 2; y < ny - 2; ++y) {
      const int64_t most = nx - 2;
      if (z < nz - 2) {
        const int64_t row = z * Z + y * Y;
        const REAL keep_z = weights[0][z], take_z = weights[1][z];
        const REAL keep_y = weights[2][y], take_y = weights[3][y];
        const int64_t begin = without.begin < 2 ? 2 : without.begin;
        const int64_t end = without.end > most ? most : without.end;
        auto part = [&](bool x, int64_t from, int64_t to) {
          WITH_MEMORIES(slopes, take_z != 0, take_y != 0, x, a[0] + row, a[3] + row, a[4] + row,
                        a[5] + row, Z, Y, keep_z, take_z, keep_y, take_y, weights[4], weights[5],
                        from, to)
        };
        part(true, 2, begin), part(false, begin, end), part(true, end, most);
      }
      if (z >= 2 + 2) {
        const int64_t row = (z - 2) * Z + y * Y;
        const REAL keep_z = weights[6][z - 2], take_z = weights[7][z - 2];
        const REAL keep_y = weights[8][y], take_y = weights[9][y];
        const int64_t begin = without.begin + 2;
        const int64_t end = without.end - 1 < begin ? begin : without.end - 1;
        auto part = [&](bool x, int64_t from, int64_t to) {
          WITH_MEMORIES(bends, near(weights[1], weights[7], z - 2), near(weights[3], weights[9], y),
                        x, a[0] + row, a[1] + row, a[2] + row, a[3] + row, a[4] + row, a[5] + row,
                        a[6] + row, a[7] + row, a[8] + row, Z, Y, keep_z, take_z, keep_y, take_y,
                        weights[10], weights[11], from, to)
        };
        part(true, 2, begin), part(false, begin, end), part(true, end, most);
      }
    }
  }
}

// The electric field of a row follows the magnetic ones of that row, except where another thread
// has made those before: the first row of a thread waits for all.
extern "C" void cavity(REAL* const* a, const REAL* w, int64_t, int64_t ny, int64_t nx,
                       int64_t pitch) {
  const REAL s = w[0];
  REAL *e = a[0], *hx = a[1], *hy = a[2];
  const REAL* inside = a[3];
  auto electric = [&](int64_t y) {
    REAL* const to = e + y * pitch;
    const REAL *p = hx + y * pitch, *q = hy + y * pitch, *here = inside + y * pitch;
#pragma GCC ivdep
    for (int64_t x = 1; x < nx - 1; ++x)
      to[x] += here[x] * s * (q[x] - q[x - 1] - p[x] + p[x - pitch]);
  };
#pragma omp parallel
  {
    const int64_t self = omp_get_thread_num(), threads = omp_get_num_threads(), rows = ny - 2;
    const int64_t begin = 1 + rows * self / threads, end = 1 + rows * (self + 1) / threads;
    for (int64_t y = begin; y < end; ++y) {
      const REAL* from = e + y * pitch;
      REAL *p = hx + y * pitch, *q = hy + y * pitch;
#pragma GCC ivdep
      for (int64_t x = 1; x < nx - 1; ++x) {
        p[x] -= s * (from[x + pitch] - from[x]);
        q[x] += s * (from[x + 1] - from[x]);
      }
      if (y > begin) electric(y);
    }
#pragma omp barrier
    if (begin < end) electric(begin);
  }
}
"""
