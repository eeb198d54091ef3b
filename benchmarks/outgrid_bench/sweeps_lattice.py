"""Sweeps in C of the lattice with 19 velocities: of two lattices, and in place.

In place (P. Bailey, J. Myre, S. D. C. Walsh, D. J. Lilja and M. O. Saar, Accelerating lattice
Boltzmann fluid flow simulations using graphics processors, ICPP 2009,
doi:10.1109/ICPP.2009.38) steps take turns. One reads what comes to a cell from its neighbours, and
leaves there what goes to them, in the place of the opposite direction. So the next finds all that
comes to a cell in the cell itself. Each place is read and written by one cell alone, so the order
of cells does not matter.

Walls lie half-way to cells where ``kind`` is above 0. In place those cells stay as they are; with
two lattices they are updated as all others. The outermost cells never change. Which rows are away
from both is found before the first step.
"""

__all__ = ["LATTICE"]

LATTICE = r"""
#include <vector>

namespace {

// Velocities z, y, x: at rest, then pairs of opposite ones.
constexpr int kVelocity[19][3] = {
    {0, 0, 0},  {0, 0, 1},  {0, 0, -1}, {0, 1, -1}, {0, -1, 1}, {0, 1, 0},   {0, -1, 0},
    {0, 1, 1},  {0, -1, -1}, {1, -1, 0}, {-1, 1, 0}, {1, 0, -1}, {-1, 0, 1}, {1, 0, 0},
    {-1, 0, 0}, {1, 0, 1},  {-1, 0, -1}, {1, 1, 0}, {-1, -1, 0}};
constexpr int opposite(int i) { return i == 0 ? 0 : i % 2 ? i + 1 : i - 1; }
constexpr REAL weight(int i) {
  const int n = kVelocity[i][0] * kVelocity[i][0] + kVelocity[i][1] * kVelocity[i][1] +
                kVelocity[i][2] * kVelocity[i][2];
  return n == 0 ? REAL(1.0 / 3) : n == 1 ? REAL(1.0 / 18) : REAL(1.0 / 36);
}

#if defined(__AVX512F__)
constexpr int kLanes = 64 / sizeof(REAL);
#elif defined(__AVX__)
constexpr int kLanes = 32 / sizeof(REAL);
#else
constexpr int kLanes = 16 / sizeof(REAL);
#endif
typedef REAL Vector __attribute__((vector_size(kLanes * sizeof(REAL))));
typedef REAL Loose __attribute__((vector_size(kLanes * sizeof(REAL)), aligned(8), may_alias));

template <class T>
inline __attribute__((always_inline)) T read(const REAL* from) {
  if constexpr (sizeof(T) == sizeof(REAL)) {
    return *from;
  } else {
    return *(const Loose*)from;
  }
}
template <class T>
inline __attribute__((always_inline)) void write(REAL* to, T value) {
  if constexpr (sizeof(T) == sizeof(REAL)) {
    *to = value;
  } else {
    *(Loose*)to = value;
  }
}

template <class T>
inline __attribute__((always_inline)) void collide(T (&f)[19], REAL even, REAL odd) {
  T density = T{}, flow[3] = {};
#pragma GCC unroll 9
  for (int i = 1; i < 19; i += 2) {
    const T difference = f[i] - f[i + 1];
    density += f[i] + f[i + 1];
#pragma GCC unroll 3
    for (int axis = 0; axis < 3; ++axis) {
      if (kVelocity[i][axis] > 0) flow[axis] += difference;
      if (kVelocity[i][axis] < 0) flow[axis] -= difference;
    }
  }
  const T squared = flow[0] * flow[0] + flow[1] * flow[1] + flow[2] * flow[2];
  const T rest = f[0] + density - REAL(1.5) * squared;
  f[0] -= even * (f[0] - REAL(1.0 / 3) * rest);
#pragma GCC unroll 9
  for (int i = 1; i < 19; i += 2) {
    T along = T{};
#pragma GCC unroll 3
    for (int axis = 0; axis < 3; ++axis) {
      if (kVelocity[i][axis] > 0) along += flow[axis];
      if (kVelocity[i][axis] < 0) along -= flow[axis];
    }
    const T sum = REAL(0.5) * (f[i] + f[i + 1]), difference = REAL(0.5) * (f[i] - f[i + 1]);
    const T equilibrium = (REAL(4.5) * weight(i)) * (along * along) + weight(i) * rest;
    const T symmetric = even * (sum - equilibrium);
    const T antisymmetric = odd * (difference - (3 * weight(i)) * along);
    f[i] = f[i] - symmetric - antisymmetric;
    f[i + 1] = f[i + 1] - symmetric + antisymmetric;
  }
}

std::vector<uint8_t> free_rows;  // whether a row is away from walls

struct Grid {
  const REAL* kind;
  int64_t nz, ny, nx, off[19];
  REAL even, odd, lid;
  Grid(const REAL* kind, const REAL* w, int64_t nz, int64_t ny, int64_t nx, int64_t pitch)
      : kind(kind), nz(nz), ny(ny), nx(nx), even(w[0]), odd(w[1]), lid(w[2]) {
    for (int i = 0; i < 19; ++i)
      off[i] = kVelocity[i][0] * pitch + kVelocity[i][1] * nx + kVelocity[i][2];
  }
  bool outermost(int64_t z, int64_t y, int64_t x) const {
    return z < 1 || z >= nz - 1 || y < 1 || y >= ny - 1 || x < 1 || x >= nx - 1;
  }
  // What a wall adds to a population that it sends back in direction i, times kind - 1 there.
  REAL pushed(int i, REAL kind) const {
    return 6 * weight(i) * kVelocity[i][2] * lid * (kind - 1);
  }
};

// Columns [1, nx - 1) of all rows: `one` for those beside a wall, else whole vectors by `many`.
template <class One, class Many>
inline __attribute__((always_inline)) void columns(const Grid& g, int64_t row, const One& one,
                                                   const Many& many) {
  int64_t x = 1;
  if (free_rows[row]) {
    one(x++);
    for (; x + kLanes <= g.nx - 2; x += kLanes) many(x);
  }
  for (; x < g.nx - 1; ++x) one(x);
}

void find_free_rows(const REAL* kind, int64_t nz, int64_t ny, int64_t nx, int64_t pitch) {
  std::vector<uint8_t> fluid(nz * ny, 1);
  for (int64_t row = 0; row < nz * ny; ++row)
    for (int64_t x = 0; x < nx; ++x)
      fluid[row] &= !(kind[row / ny * pitch + row % ny * nx + x] > 0);
  free_rows.assign(nz * ny, 0);
  for (int64_t z = 2; z < nz - 2; ++z)
    for (int64_t y = 2; y < ny - 2; ++y) {
      uint8_t free = 1;
      for (int64_t n = 0; n < 9; ++n) free &= fluid[(z + n / 3 - 1) * ny + y + n % 3 - 1];
      free_rows[z * ny + y] = free;
    }
}

}  // namespace

// f0, in place; f1 to f18, now and next; kind.
extern "C" void lattice_begin(REAL* const* a, const REAL*, int64_t nz, int64_t ny, int64_t nx,
                              int64_t pitch) {
  find_free_rows(a[37], nz, ny, nx, pitch);
}
extern "C" void lattice(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                        int64_t pitch) {
  const Grid g(a[37], w, nz, ny, nx, pitch);
#pragma omp parallel
  {
    std::vector<REAL> space(18 * nx);
    REAL* const lines = space.data();
#pragma omp for collapse(2) schedule(static)
    for (int64_t z = 1; z < nz - 1; ++z)
      for (int64_t y = 1; y < ny - 1; ++y) {
        const int64_t row = z * pitch + y * nx;
        const REAL* from[19];
        REAL* const at_rest = a[0] + row;
        for (int i = 1; i < 19; ++i) from[i] = a[2 * i - 1] + row - g.off[i];
        auto put = [&](int64_t x, auto(&f)) __attribute__((always_inline)) {
          collide(f, g.even, g.odd);
          write(at_rest + x, f[0]);
#pragma GCC unroll 18
          for (int i = 1; i < 19; ++i) write(lines + (i - 1) * nx + x, f[i]);
        };
        auto one = [&](int64_t x) {
          REAL f[19] = {at_rest[x]};
          for (int i = 1; i < 19; ++i) {
            const REAL kind = g.kind[row + x - g.off[i]];
            const REAL back = a[2 * opposite(i) - 1][row + x];
            f[i] = kind > 0 ? back + g.pushed(i, kind) : from[i][x];
          }
          put(x, f);
        };
        auto many = [&](int64_t x) __attribute__((always_inline)) {
          Vector f[19] = {read<Vector>(at_rest + x)};
#pragma GCC unroll 18
          for (int i = 1; i < 19; ++i) f[i] = read<Vector>(from[i] + x);
          put(x, f);
        };
        columns(g, z * ny + y, one, many);
        for (int i = 1; i < 19; ++i)
          stream(a[2 * i] + row + 1, lines + (i - 1) * nx + 1, nx - 2);
      }
  }
}

// In place: f0 to f18, kind.
extern "C" void lattice_begin_in_place(REAL* const* a, const REAL*, int64_t nz, int64_t ny,
                                       int64_t nx, int64_t pitch) {
  find_free_rows(a[19], nz, ny, nx, pitch);
}
// The step that reads and writes the places of neighbours.
extern "C" void lattice_across(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                               int64_t pitch) {
  const Grid g(a[19], w, nz, ny, nx, pitch);
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t z = 1; z < nz - 1; ++z)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const int64_t row = z * pitch + y * nx;
      REAL* place[19];
      for (int i = 0; i < 19; ++i) place[i] = a[i] + row - g.off[i];
      auto one = [&](int64_t x) {
        if (g.kind[row + x] > 0) return;
        REAL f[19], before[19];
        bool wall[19], edge[19];
        for (int i = 0; i < 19; ++i) {
          const int* v = kVelocity[i];
          const REAL kind = g.kind[row + x - g.off[i]];
          wall[i] = kind > 0, edge[i] = g.outermost(z - v[0], y - v[1], x - v[2]);
          f[i] = before[i] = place[i][x];
          if (wall[i]) f[i] = a[opposite(i)][row + x] + g.pushed(i, kind);
        }
        collide(f, g.even, g.odd);
        for (int i = 0; i < 19; ++i) {
          const int from = opposite(i);  // what comes next from the place that f[i] goes to
          if (wall[from]) {
            const REAL kind = g.kind[row + x - g.off[from]];
            a[i][row + x] = f[i] + g.pushed(from, kind);
          } else if (edge[from]) {
            a[i][row + x] = before[from];
          } else {
            place[from][x] = f[i];
          }
        }
      };
      auto many = [&](int64_t x) __attribute__((always_inline)) {
        Vector f[19];
#pragma GCC unroll 19
        for (int i = 0; i < 19; ++i) f[i] = read<Vector>(place[i] + x);
        collide(f, g.even, g.odd);
#pragma GCC unroll 19
        for (int i = 0; i < 19; ++i) write(place[opposite(i)] + x, f[i]);
      };
      columns(g, z * ny + y, one, many);
    }
}

// The step within cells.
extern "C" void lattice_within(REAL* const* a, const REAL* w, int64_t nz, int64_t ny, int64_t nx,
                               int64_t pitch) {
  const Grid g(a[19], w, nz, ny, nx, pitch);
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t z = 1; z < nz - 1; ++z)
    for (int64_t y = 1; y < ny - 1; ++y) {
      const int64_t row = z * pitch + y * nx;
      REAL* place[19];
      for (int i = 0; i < 19; ++i) place[i] = a[i] + row;
      auto step = [&](int64_t x, auto(&f)) __attribute__((always_inline)) {
        typedef __typeof__(f[0] + f[0]) T;
#pragma GCC unroll 19
        for (int i = 0; i < 19; ++i) f[i] = read<T>(place[opposite(i)] + x);
        collide(f, g.even, g.odd);
#pragma GCC unroll 19
        for (int i = 0; i < 19; ++i) write(place[i] + x, f[i]);
      };
      auto one = [&](int64_t x) {
        REAL f[19];
        if (!(g.kind[row + x] > 0)) step(x, f);
      };
      auto many = [&](int64_t x) __attribute__((always_inline)) {
        Vector f[19];
        step(x, f);
      };
      columns(g, z * ny + y, one, many);
    }
}
"""
