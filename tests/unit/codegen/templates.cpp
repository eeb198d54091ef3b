// The headers of kernels around the smallest stencil, for `make check`: what is the same for every
// kernel is compiled here as its own code is. Compiled with -DREAL=float, and double.
using Real = REAL;

#include "cpu/functions.hpp"
#include "cpu/kernel.hpp"
#include "cpu/totals.hpp"

namespace {

// One field that is kept in floats and one in doubles, each halved by a stage of its own. This is
// all that the headers ask of a stencil.
struct Stencil {
  static constexpr int kStages = 2;
  static constexpr int64_t kFields = 2, kParameters = 2;
  static constexpr bool kNarrow[] = {false, false};
  static constexpr int64_t kAbsent[] = {0, 0};
  static constexpr int kReductions = 1;
  // Types of cells that are updated.
  template <class Visit>
  OG_INLINE void for_cells(const Visit& visit) {
    visit(float{}), visit(double{});
  }
  // Cells of the fixed layer at each face.
  static constexpr int64_t kLowZ = 1, kLowY = 1, kLowX = 1, kHighZ = 1, kHighY = 1, kHighX = 1;
  // Whether planes are one row, and tiles cut columns; whether they close round their axis.
  static constexpr bool kAcrossColumns = REAL(0.1) == 0.1, kCircle = true;
  // Planes behind the front, upward and downward; how edges of tiles move from level to level.
  static constexpr int64_t kShift[2][kStages] = {{0, 1}, {0, 1}};
  static constexpr int64_t kSlope = 2, kUnit = 1, kColumnSlope = 16, kColumnUnit = 16;
  static constexpr int64_t kFall[kStages] = {0, 1}, kRise[kStages] = {0, 1};
  static constexpr int64_t kColumnFall[kStages] = {0, 16};

  struct Uniform {
    Real half;
    OG_INLINE Uniform of(const double* given) { return {Real(given[0])}; }
  };

  // By the number of a field.
  OG_INLINE int writer(int64_t field) { return static_cast<int>(field); }
  OG_INLINE int cell_kind(int64_t field) { return field == 0 ? kKind<float> : kKind<double>; }
  OG_INLINE void* plane_of(const Slab& s, int64_t field, int64_t level, int64_t z) {
    if (field == 0) return plane<float>(s, 0, level, z);
    return plane<double>(s, 1, level, z);
  }
  template <class Cell>
  OG_INLINE Cell* plane(const Slab& s, int64_t field, int64_t level, int64_t z) {
    return (Cell*)s.rings[2 * field + level % 2][z] + s.row_offset;
  }

  // What a stage leaves as it is in a tile of a plane.
  OG_CALL void keep_tile(const Slab& s, int64_t t, int stage, int64_t z, const Tile& c) {
    const int64_t now = s.base + t;
    if (stage == 0) {
      keep(plane<float>(s, 0, now, z), plane<float>(s, 0, now - 1, z), s.row_stride, c);
    } else {
      keep(plane<double>(s, 1, now, z), plane<double>(s, 1, now - 1, z), s.row_stride, c);
    }
  }

  // Updates some of n planes from z on; returns how many.
  static int64_t update_planes(const Slab& s, const Uniform& u, int64_t t, int stage, int64_t z,
                               int64_t, const Tile& c, const Way& way) {
    if (stage == 0) {
      update<float>(s, u, 0, t, z, c, way);
    } else {
      update<double>(s, u, 1, t, z, c, way);
    }
    return 1;
  }
  template <class Cell>
  static void update(const Slab& s, const Uniform& u, int field, int64_t t, int64_t z,
                     const Tile& c, const Way& way) {
    const Cell* const from = plane<Cell>(s, field, s.base + t - 1, z);
    const Cell* const next = plane<Cell>(s, field, s.base + t - 1, inside(s, z + way.ahead));
    Cell* const to = plane<Cell>(s, field, s.base + t, z);
    for (int64_t y = c.y0; y < c.y1; ++y) {
      for (int64_t x = c.x0; x < c.x1; x += kLanes) {
        V near[3], ahead[2];
        const Cell* const at = from + y * s.row_stride + x;
        keep_near(near, at);
        read<1>(ahead, at, near);
        const V found = fma(all(u.half), shifted<-1>(near), exp_of(ahead[0]) * pow_of(u.half, 2));
        const V in_row = choose(within(x, kLowX, s.columns - kHighX), found, near[0]);
        if (way.ahead != 0) fetch_line(next + y * s.row_stride + x);
        if constexpr (std::is_same_v<Cell, Real>) {
          if (way.past) store_past(to + y * s.row_stride + x, in_row);
        }
        store(to + y * s.row_stride + x, in_row);
      }
    }
  }

  // Adds what is reduced before a stage.
  static void reduce(const Slab& s, const Uniform&, int64_t t, int stage, int64_t z0, int64_t z1,
                     const Tile& c) {
    Total sum, most;
    for (int64_t z = z0; z < z1; ++z) {
      const V v = load(plane<float>(s, 0, s.base + t, z) + c.x0);
      sum.sum(v, c.x0);
      sum.close();
      most.most_of(v);
    }
    sum.give_sum(s.totals + stage * kCells);
    most.give_most(s.totals + stage * kCells);
  }

  // Fetches what a level is the first in its diamond to read beside an edge.
  template <int Side>
  OG_INLINE void fetch_ahead(const Slab& s, int64_t t, int, int64_t z0, int64_t, int64_t edge) {
    fetch<Side, kSlope, 1>(plane<float>(s, 0, s.base + t, streamed(s, z0)) + edge);
  }
};

}  // namespace

extern "C" int outgrid_advance(const Slab* slab) { return advance<Stencil>(*slab); }
