"""The loops of a kernel: slabs, levels, diamonds. The same text serves every stencil.

A slab is a range of the front. Stage j of level t works on plane ``F - behind(j, t)``; updates
follow those that they read, in any order that respects this.
"""

from __future__ import annotations

KEEP = r"""
// Cells outside the interior keep their value: copied from level to level like an update.
OG_INLINE void keep(REAL* to, const REAL* from, int64_t stride, const Tile& c) {
  for (int64_t y = c.y0; y < c.y1; ++y) {
    std::memcpy(to + y * stride + c.x0, from + y * stride + c.x0, (c.x1 - c.x0) * sizeof(REAL));
  }
}
"""

FETCH = r"""
// Fetches the lines by which an edge of columns moves from level to level, `Far` cells beyond it.
template <int Side, int64_t Far>
OG_INLINE void fetch(const REAL* edge) {
  constexpr int64_t line = 64 / sizeof(REAL), beyond = (Far + line - 1) / line * line;
  for (int64_t n = 0; n < kSlope; n += line) {
    __builtin_prefetch(edge + n + (Side < 0 ? -beyond : beyond - kSlope));
  }
}
"""

SLAB = (
    r"""
#include <cerrno>
#include <cstring>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

namespace {

// Indices [first, end) of an axis, by steps.
struct Part {
  int64_t first, end, step;
  int64_t count() const { return (end - first + step - 1) / step; }
};

// Cells of a field that are kept in a file, after step `begin` and every so many; the first of them
// `offset` bytes into it.
struct Snapshot {
  int64_t field, file, begin, every, offset;
  Part z, y, x;
};

// What one call advances, all in plane numbers of the sweep. Rings hold addresses of planes.
struct Slab {
  const char* const* const* rings;  // [ring][plane]
  const double* parameters;  // [level - 1][parameter]
  const REAL* const* profiles;  // [profile][index along its axis]
  // Sources and receivers: rows of (field, plane, row, column), and [level - 1][place].
  const int64_t* injected;
  const double* amounts;
  const int64_t* sampled;
  double* samples;
  const Snapshot* kept;
  int64_t* failure;  // the error number of a snapshot that could not be written
  int64_t* totals;  // [level - 1][reduction][kCells]
  // The place, as `place` counts them, of the first value seen that is no finite number.
  int64_t* broken;
  const int64_t* plane_shifts;  // [stage]: so much higher does a stage begin, then: and end
  const int64_t* row_shifts;
  int64_t injections, receptions, snapshots;
  int64_t made;  // steps before level 1, as snapshots count them
  int64_t planes, rows, columns, row_stride;  // extents; stride of rows in elements
  int64_t first, last;                        // front positions [first, last)
  int64_t depth, base, skew;                  // levels 1..depth, level t in ring (base + t) mod m
  int64_t since;                              // the first level of this call, else 1
  int64_t watch;                              // the first level that is looked at; 0: none is
  // Level t works on planes, and on rows, [low + rise*t, high + fall*t). Where there is a period,
  // so many planes, or rows, on the first ones come again. Front positions and bounds of planes
  // count from the last plane where that is the first one to be made: where the stream goes
  // downward.
  int64_t plane_low, plane_high, plane_rise, plane_fall, period, row_period, downward;
  int64_t row_low, row_high, row_rise, row_fall;
  // Planes and rows whose cells are counted in reductions and kept in snapshots: here and nowhere
  // else.
  int64_t own_z0, own_z1, own_y0, own_y1;
  int64_t row_offset;                         // elements from a plane's address to its row 0
  int64_t order, tile_rows, tile_planes, tile_columns, tile_band, threads;
  int64_t pin;  // whether each thread stays on a processor of its own
};

// Rows [y0, y1) and columns [x0, x1) of a plane; x0 and x1 are multiples of kLanes, or the end.
struct Tile {
  int64_t y0, y1, x0, x1;
};
"""
    + KEEP
    + r"""
"""
    + FETCH
    + r"""
// How many planes behind the front a stage of level t works.
OG_INLINE int64_t behind(const Slab& s, int64_t t, int stage) {
  return kShift[s.downward][stage] + s.skew * t;
}

// A plane of the stream as the grid counts it, or the other way round.
OG_INLINE int64_t streamed(const Slab& s, int64_t z) { return s.downward ? s.planes - 1 - z : z; }

// The planes and rows that level t of this trip may update.
OG_INLINE int64_t first_plane(const Slab& s, int64_t t, int stage) {
  return most(0, s.plane_low + s.plane_rise * t + s.plane_shifts[stage]);
}
OG_INLINE int64_t end_plane(const Slab& s, int64_t t, int stage) {
  return least(s.planes, s.plane_high + s.plane_fall * t + s.plane_shifts[kStages + stage]);
}
OG_INLINE int64_t first_row(const Slab& s, int64_t t, int stage) {
  return kAcrossColumns ? 0 : most(0, s.row_low + s.row_rise * t + s.row_shifts[stage]);
}
OG_INLINE int64_t end_row(const Slab& s, int64_t t, int stage) {
  if (kAcrossColumns) return s.rows;
  return least(s.rows, s.row_high + s.row_fall * t + s.row_shifts[kStages + stage]);
}
"""
)

VISITS = r"""
// The index i below `end`, of a plane or a row, or that which comes a period later.
OG_INLINE int64_t turned(int64_t period, int64_t i, int64_t end) {
  return i + period < end ? i + period : i;
}

// Where the plane or the row i comes for the first time.
OG_INLINE int64_t unturned(int64_t period, int64_t i) { return period > 0 ? i % period : i; }

// Whether a place is of a field that the stage updates, on planes [z0, z1) of a tile.
OG_INLINE bool holds(const Slab& s, const int64_t* at, int stage, int64_t z0, int64_t z1,
                     const Tile& c) {
  const int64_t z = turned(s.period, at[1], z1), y = turned(s.row_period, at[2], c.y1);
  return kWriter[at[0]] == stage && z >= z0 && z < z1 && y >= c.y0 && y < c.y1 && at[3] >= c.x0 &&
         at[3] < c.x1;
}

// Sources add to what was just made, then receivers look at it: each place is in one tile.
void points(const Slab& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  for (int64_t n = 0; n < s.injections; ++n) {
    const int64_t* at = s.injected + 4 * n;
    if (!holds(s, at, stage, z0, z1, c)) continue;
    const double amount = s.amounts[(t - 1) * s.injections + n];
    REAL* plane = plane_of(s, at[0], s.base + t, turned(s.period, at[1], z1));
    plane[turned(s.row_period, at[2], c.y1) * s.row_stride + at[3]] += REAL(amount);
  }
  for (int64_t n = 0; n < s.receptions; ++n) {
    const int64_t* at = s.sampled + 4 * n;
    if (!holds(s, at, stage, z0, z1, c)) continue;
    const REAL* plane = plane_of(s, at[0], s.base + t, turned(s.period, at[1], z1));
    const REAL* row = plane + turned(s.row_period, at[2], c.y1) * s.row_stride;
    s.samples[(t - 1) * s.receptions + n] = row[at[3]];
  }
}

// Whether all values of a tile are finite: v - v is 0 for those, and NaN for all others.
OG_INLINE bool all_finite(const REAL* plane, int64_t stride, const Tile& c) {
  V a{}, b{}, d{}, e{};  // chains that do not wait for each other
  REAL rest = 0;
  for (int64_t y = c.y0; y < c.y1; ++y) {
    const REAL* row = plane + y * stride;
    int64_t x = c.x0;
    for (; x + 4 * kLanes <= c.x1; x += 4 * kLanes) {
      const V va = load(row + x), vb = load(row + x + kLanes);
      const V vd = load(row + x + 2 * kLanes), ve = load(row + x + 3 * kLanes);
      a += va - va, b += vb - vb, d += vd - vd, e += ve - ve;
    }
    for (; x + kLanes <= c.x1; x += kLanes) {
      const V v = load(row + x);
      a += v - v;
    }
    for (; x < c.x1; ++x) rest += row[x] - row[x];
  }
  const V sum = (a + b) + (d + e);
  for (int64_t l = 0; l < kLanes; ++l) rest += sum[l];
  return rest == 0;
}

// Looks at what a stage has just made in a tile, and notes the first value that is not finite.
// Places are counted by level, stage, plane, row, column and field, and twice: infinite, or NaN.
void look(const Slab& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  for (int64_t field = 0; field < kFields; ++field) {
    if (kWriter[field] != stage) continue;
    for (int64_t z = z0; z < z1; ++z) {
      const REAL* plane = plane_of(s, field, s.base + t, z);
      if (all_finite(plane, s.row_stride, c)) continue;
      for (int64_t y = c.y0; y < c.y1; ++y) {
        const REAL* row = plane + y * s.row_stride;
        int64_t x = c.x0;
        while (x < c.x1 && row[x] - row[x] == 0) ++x;
        if (x == c.x1) continue;
        int64_t place = (t - 1) * kStages + stage;
        place = place * s.planes + unturned(s.period, z);
        place = place * (s.row_period > 0 ? s.row_period : s.rows) + unturned(s.row_period, y);
        place = (place * s.columns + x) * kFields + field;
        place = 2 * place + (row[x] != row[x]);
        int64_t now = __atomic_load_n(s.broken, __ATOMIC_RELAXED);
        while (place < now && !__atomic_compare_exchange_n(s.broken, &now, place, true,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
      }
    }
  }
}

// Values on their way to a file: neighbours there are written by one call.
class Outlet {
 public:
  Outlet(int64_t file, int64_t* failure) : file_(static_cast<int>(file)), failure_(failure) {}
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  ~Outlet() { flush(); }

  // `count` values from `from` on, every `step`-th, go `at` bytes into the file.
  void put(int64_t at, const REAL* from, int64_t count, int64_t step) {
    while (count > 0) {
      if (held_ == kMost || at != at_ + held_ * kItem) flush();
      if (held_ == 0) at_ = at;
      const int64_t n = least(count, kMost - held_);
      for (int64_t i = 0; i < n; ++i) values_[held_ + i] = from[i * step];
      held_ += n, count -= n, at += n * kItem, from += n * step;
    }
  }

 private:
  static constexpr int64_t kMost = 4096, kItem = sizeof(REAL);
  REAL values_[kMost];
  int64_t held_ = 0, at_ = 0;
  int file_;
  int64_t* failure_;

  void flush() {
    const char* from = reinterpret_cast<const char*>(values_);
    for (int64_t done = 0, nbytes = held_ * kItem; done < nbytes;) {
      const ssize_t n = pwrite(file_, from + done, nbytes - done, at_ + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        __atomic_store_n(failure_, n < 0 ? errno : EIO, __ATOMIC_RELAXED);
        break;
      }
      done += n;
    }
    held_ = 0;
  }
};

// The first index of a part that is not below i.
OG_INLINE int64_t from(const Part& p, int64_t i) {
  return i <= p.first ? p.first : p.first + (i - p.first + p.step - 1) / p.step * p.step;
}

// What snapshots keep of planes [z0, z1) of a tile goes to their files. A plane is as the stage has
// left it, fixed cells included: each tile gives what it has written.
void snapshots(const Slab& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  const int64_t step = s.made + t;
  for (int64_t n = 0; n < s.snapshots; ++n) {
    const Snapshot& kept = s.kept[n];
    const int64_t since = step - kept.begin;
    if (kWriter[kept.field] != stage || since < 0 || since % kept.every != 0) continue;
    const int64_t own_y0 = most(c.y0, s.own_y0), own_y1 = least(c.y1, s.own_y1);
    const int64_t x0 = from(kept.x, c.x0), x1 = least(kept.x.end, c.x1);
    if (own_y0 >= own_y1 || x0 >= x1) continue;
    const int64_t count = (x1 - x0 + kept.x.step - 1) / kept.x.step;
    const int64_t before = since / kept.every * kept.z.count();
    Outlet outlet(kept.file, s.failure);
    for (int64_t i = most(z0, s.own_z0); i < least(z1, s.own_z1); ++i) {
      const int64_t z = unturned(s.period, i);
      if (z < kept.z.first || z >= kept.z.end || (z - kept.z.first) % kept.z.step != 0) continue;
      const REAL* plane = plane_of(s, kept.field, s.base + t, i);
      const int64_t planes = before + (z - kept.z.first) / kept.z.step;
      for (int64_t begin = own_y0, end; begin < own_y1; begin = end) {  // of rows up to a period
        const int64_t turn = begin - unturned(s.row_period, begin);
        end = s.row_period > 0 ? least(own_y1, turn + s.row_period) : own_y1;
        const int64_t stop = least(kept.y.end, end - turn);
        for (int64_t y = from(kept.y, begin - turn); y < stop; y += kept.y.step) {
          const int64_t rows = planes * kept.y.count() + (y - kept.y.first) / kept.y.step;
          const int64_t cells = rows * kept.x.count() + (x0 - kept.x.first) / kept.x.step;
          const REAL* row = plane + (y + turn) * s.row_stride + x0;
          outlet.put(kept.offset + cells * sizeof(REAL), row, count, kept.x.step);
        }
      }
    }
  }
}"""

LOOPS = r"""
// A stage of level t on planes [z0, z1) of a tile. In two dimensions there are very many calls, and
// a tile that was passed by value would cost each a good part of its time.
void level(const Slab& s, const Uniform* u, int64_t t, int stage, int64_t z0, int64_t z1,
           const Tile& tile) {
  z0 = most(z0, first_plane(s, t, stage)), z1 = least(z1, end_plane(s, t, stage));
  const Tile c{most(tile.y0, first_row(s, t, stage)), least(tile.y1, end_row(s, t, stage)),
               most(tile.x0, 0), least(tile.x1, s.columns)};
  if (c.y0 >= c.y1 || c.x0 >= c.x1) return;
  if (s.downward) {  // from here on planes are those of the grid
    const int64_t lowest = streamed(s, z1 - 1);
    z1 = lowest + z1 - z0, z0 = lowest;
  }
  const int64_t a = least(most(c.y0, kLowY), c.y1), b = most(least(c.y1, s.rows - kHighY), a);
  if (kReductions > 0) {
    const int64_t own_z0 = most(most(z0, kLowZ), s.own_z0);
    const int64_t own_z1 = least(least(z1, s.planes - kHighZ), s.own_z1);
    const int64_t own_a = most(a, s.own_y0), own_b = least(b, s.own_y1);
    if (own_z0 < own_z1 && own_a < own_b) {
      reduce(s, u[t - 1], t, stage, own_z0, own_z1, Tile{own_a, own_b, c.x0, c.x1});
    }
  }
  const bool looks = s.watch > 0 && t >= s.watch;
  for (int64_t z = z0; z < z1;) {
    if (z < kLowZ || z >= s.planes - kHighZ) {
      keep_tile(s, t, stage, z, c);
      ++z;
      continue;
    }
    const int64_t n = least(z1, s.planes - kHighZ) - z;
    const int64_t taken = update_planes(s, u[t - 1], t, stage, z, n, Tile{a, b, c.x0, c.x1});
    for (int64_t i = z; i < z + taken; ++i) {
      if (c.y0 < a) keep_tile(s, t, stage, i, Tile{c.y0, a, c.x0, c.x1});
      if (b < c.y1) keep_tile(s, t, stage, i, Tile{b, c.y1, c.x0, c.x1});
    }
    if (looks) look(s, t, stage, z, z + taken, c);  // now, while it is in the nearest cache
    z += taken;
  }
  if (s.injections + s.receptions > 0) points(s, t, stage, z0, z1, c);
  if (looks && s.injections > 0) look(s, t, stage, z0, z1, c);
  if (s.snapshots > 0) snapshots(s, t, stage, z0, z1, c);
}

// How many of a thread's shares of a level are taken.
struct alignas(64) Taken {
  int64_t count;
};

// Each stage over the whole slab before the next; blocks of rows and planes are shared out.
void by_level(const Slab& s, const Uniform* u) {
  Taken* const taken = new Taken[s.depth * kStages * s.threads]{};
#pragma omp parallel num_threads(s.threads)
  for (int64_t n = (s.since - 1) * kStages; n < s.depth * kStages; ++n) {
    const int64_t t = 1 + n / kStages;
    const int stage = static_cast<int>(n % kStages);
    const int64_t back = behind(s, t, stage);
    const int64_t z0 = most(first_plane(s, t, stage), s.first - back);
    const int64_t z1 = least(end_plane(s, t, stage), s.last - back);
    const int64_t y0 = first_row(s, t, stage), y1 = end_row(s, t, stage);
    if (z0 >= z1 || y0 >= y1) continue;
    const int64_t rows = s.tile_rows > 0 ? s.tile_rows : y1 - y0;
    const int64_t blocks = (y1 - y0 + rows - 1) / rows;
    // What is reduced is not cut.
    const int64_t unit = kReductions == 0 ? kLanes : kAcrossColumns ? kLine : s.columns;
    const int64_t lines = (s.tile_columns + unit - 1) / unit;
    const int64_t length = lines > 0 ? lines * unit : s.columns;
    const int64_t groups = (z1 - z0 + s.tile_planes - 1) / s.tile_planes;
    if (blocks > 1 || lines > 0) {
      // Blocks of rows, through which all planes pass; or of rows, columns and planes.
      const int64_t deep = lines > 0 ? s.tile_planes : z1 - z0;
#pragma omp for collapse(3) schedule(dynamic, 1)
      for (int64_t z = z0; z < z1; z += deep) {
        for (int64_t b = 0; b < blocks; ++b) {
          for (int64_t x = 0; x < s.columns; x += length) {
            const Tile tile{y0 + b * rows, least(y0 + (b + 1) * rows, y1), x, x + length};
            level(s, u, t, stage, z, least(z + deep, z1), tile);
          }
        }
      }
    } else {
      // Whole planes, cut in y as well where they are few. Each thread begins with the planes that
      // it had in the level before, which its caches may hold, and then helps those that are held
      // up, by transfers or another program.
      const int64_t threads = omp_get_num_threads(), self = omp_get_thread_num();
      const int64_t cut = groups >= 4 * threads || y1 - y0 == 1 ? 1 : threads;
      const int64_t height = (y1 - y0 + cut - 1) / cut, shares = groups * cut;
      for (int64_t i = 0; i < threads; ++i) {
        const int64_t owner = (self + i) % threads;
        const int64_t begin = shares * owner / threads, end = shares * (owner + 1) / threads;
        int64_t& next = taken[n * s.threads + owner].count;
        for (;;) {
          const int64_t share = begin + __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
          if (share >= end) break;
          const int64_t z = z0 + share / cut * s.tile_planes, y = y0 + share % cut * height;
          level(s, u, t, stage, z, least(z + s.tile_planes, z1), Tile{y, y + height, 0, s.columns});
        }
      }
#pragma omp barrier
    }
  }
  delete[] taken;
}

OG_INLINE int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
OG_INLINE int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Where strips of tiles begin, in cells: `count` strips to each `length`, on whole units. On a line
// that is one strip and its width. On a circle it is all of them and the way round, from which so
// many strips as are wanted need not be equal parts: some are a unit wider than others.
struct Cuts {
  int64_t length, count;
  bool circle;
  int64_t at(int64_t n) const { return floor_div(n * (length / kUnit), count) * kUnit; }
};

// Diamonds of about `width` cells close round a circle, if it is here as a whole and not in strips.
// What a last part of a unit holds belongs to the unit before it, so that no unit is narrower than
// a step reaches.
Cuts cuts_of(const Slab& s, int64_t width) {
  if (!kCircle || s.row_period > 0) return {width, 1, false};
  const int64_t length = most(1, (kAcrossColumns ? s.columns : s.rows) / kUnit) * kUnit;
  return {length, ceil_div(length, width), true};
}

// How far an edge of columns in three dimensions has fallen for a stage, `levels` after it began.
OG_INLINE int64_t fallen(int64_t levels, int stage) {
  return kColumnSlope * levels + kColumnFall[stage];
}

// A row of diamonds: those of one sum p + q.
struct Row {
  int64_t sum, t0, t1;   // levels [t0, t1]
  int64_t p0, p1, jobs;  // falling strips [p0, p1); jobs of the rows before
  int64_t finished;      // jobs of this row that are done
};

// Cells between two edges that fall, from p0 and from p1 on, and two that rise.
struct Lozenge {
  int64_t p0, p1, q0, q1;
};

// One step of the front, through all levels of a diamond or of a band of it. While it widens, each
// level reads cells beside those of the level before, which other diamonds made long ago. Rows
// of columns are too short for the processor to see them coming, so they are fetched one step of
// the front ahead.
OG_INLINE void step(const Slab& s, const Uniform* u, const Cuts& cuts, const Row& row,
                    const Lozenge& edges, int64_t front, int64_t x, int64_t length) {
  const int64_t stop = least(front + s.tile_planes, s.last);
  const int64_t next = least(stop + s.tile_planes, s.last);
  for (int64_t t = row.t0; t <= row.t1; ++t) {
    for (int j = 0; j < kStages; ++j) {
      const int64_t falls = kSlope * t + kFall[j], rises = kSlope * t + kRise[j];
      const int64_t low = most(edges.p0 - falls, rises - edges.q1);
      const int64_t high = least(edges.p1 - falls, rises - edges.q0);
      const int64_t back = behind(s, t, j), past = fallen(t - row.t0, j);
      // On a circle cells are counted from 0 again behind its end.
      for (int64_t a = low, b = high; a < high; a = b, b = high) {
        int64_t begin = a, end = high;
        if (cuts.circle) {
          const int64_t turn = floor_div(a, cuts.length) * cuts.length;
          b = least(high, turn + cuts.length);
          begin = a - turn;
          end = b - turn < cuts.length ? b - turn : kAcrossColumns ? s.columns : s.rows;
        }
        if constexpr (kAcrossColumns) {
          if (a == edges.p0 - falls) fetch_ahead<-1>(s, t, j, stop - back, next - back, begin);
          if (b == rises - edges.q0) fetch_ahead<1>(s, t, j, stop - back, next - back, end);
          level(s, u, t, j, front - back, stop - back, Tile{0, s.rows, begin, end});
        } else {
          const Tile tile{begin, end, x - past, x + length - past};
          level(s, u, t, j, front - back, stop - back, tile);
        }
      }
    }
  }
}

// The diamond where falling strip p crosses rising strip q, in a row of diamonds.
//
// A step of the front may go through it in bands of rows, which fall as strips do: what a level of
// a band reads, the level before has left in the nearest caches, however wide the diamond is.
//
// Long rows of a plane are cut as well, by edges that fall a line or more from level to level: part
// after part, all levels of one fit the caches, and what it leans on is in those before it.
void diamond(const Slab& s, const Uniform* u, const Cuts& cuts, const Row& row, int64_t p) {
  const int64_t q = row.sum - p;
  const Lozenge edges{cuts.at(p), cuts.at(p + 1), cuts.at(q), cuts.at(q + 1)};
  int64_t end_x = s.columns;
  for (int j = 0; j < kStages; ++j) end_x = most(end_x, s.columns + fallen(row.t1 - row.t0, j));
  const int64_t parts = s.tile_columns > 0 ? ceil_div(end_x, s.tile_columns) : 1;
  const int64_t length = ceil_div(ceil_div(end_x, parts), kColumnUnit) * kColumnUnit;
  const int64_t rows = s.tile_band > 0 ? s.tile_band : edges.p1 - edges.p0;
  for (int64_t x = 0; x < end_x; x += length) {
    for (int64_t front = s.first; front < s.last; front += s.tile_planes) {
      for (int64_t low = edges.p0; low < edges.p1; low += rows) {
        const Lozenge band{low, least(low + rows, edges.p1), edges.q0, edges.q1};
        step(s, u, cuts, row, band, front, x, length);
      }
    }
  }
}

// Waits until `count` has come to `wanted`. Where there are more threads than processors, the one
// that is waited for must get its turn.
void wait_for(const int64_t& count, int64_t wanted) {
  for (int64_t turn = 0; __atomic_load_n(&count, __ATOMIC_ACQUIRE) < wanted; ++turn) {
    if (turn > 1000) sched_yield();
  }
}

// Diamonds of rows, or of columns where a plane is one row. Edges that fall and edges that rise by
// the slope per level cut the rows into strips; where a falling strip p crosses a rising strip q
// lies a diamond. What a cell depends on lies in strips of no higher number, both ways. So a
// diamond waits for two of the row before, p - 1 and p, and for all that are older; others of its
// row, and of the rows before and after, it never meets. Threads take diamonds in order: the ones
// that are waited for are always taken already. Across columns edges are whole cache lines apart
// and fall between vectors. Within a diamond the front moves a few planes at a time through all its
// levels.
//
// Round a circle of `count` strips (p, q) and (p + count, q - count) are one diamond: on the line
// that winds round it these are images of each other, and all said above holds there.
void by_diamond(const Slab& s, const Uniform* u) {
  const int64_t width = 2 * kSlope * most(1, s.tile_rows / (2 * kSlope));
  const Cuts cuts = cuts_of(s, width);
  int64_t fall = 0, rise = 0, least_sum = kFall[0] + kRise[0], most_sum = least_sum;
  for (int j = 0; j < kStages; ++j) {
    fall = most(fall, kFall[j]), rise = most(rise, kRise[j]);
    least_sum = least(least_sum, kFall[j] + kRise[j]);
    most_sum = most(most_sum, kFall[j] + kRise[j]);
  }
  // Rows that any level may update.
  int64_t begin = kAcrossColumns ? 0 : s.rows, end = kAcrossColumns ? s.columns : 0;
  for (int j = 0; j < kStages && !kAcrossColumns; ++j) {
    begin = least(begin, least(first_row(s, 1, j), first_row(s, s.depth, j)));
    end = most(end, most(end_row(s, 1, j), end_row(s, s.depth, j)));
  }
  // A cell of strips p and q has 2*slope*t + fall + rise = d with, in units, (d + 1) * count/length
  // in (p + q, p + q + 2].
  const int64_t units = cuts.length / kUnit, count = cuts.count;
  auto sums = [&](int64_t d) { return ceil_div((d / kUnit + 1) * count, units); };
  const int64_t k0 = sums(2 * kSlope * s.since + least_sum) - 2;
  const int64_t k1 = sums(2 * kSlope * s.depth + most_sum);
  Row* const rows = new Row[k1 - k0];
  int64_t jobs = 0;
  for (int64_t k = k0; k < k1; ++k) {
    Row& row = rows[k - k0];
    row = {k, most(s.since, (cuts.at(k) - most_sum) / (2 * kSlope)),
           least(s.depth, (cuts.at(k + 2) - least_sum) / (2 * kSlope)), 0, 0, jobs, 0};
    if (cuts.circle) {  // a row begins half a diamond on: what its first waits for was taken early
      row.p0 = k, row.p1 = k + count;
    } else {
      row.p0 = (begin + kSlope * row.t0) / width;
      row.p1 = most(row.p0, (end + kSlope * row.t1 + fall) / width + 1);
    }
    jobs += row.p1 - row.p0;
  }
  int64_t* const done = new int64_t[jobs]{};
  int64_t next = 0;
#pragma omp parallel num_threads(s.threads)
  for (int64_t n = 0;;) {
    const int64_t job = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    if (job >= jobs) break;
    while (job - rows[n].jobs >= rows[n].p1 - rows[n].p0) ++n;
    const int64_t p = rows[n].p0 + job - rows[n].jobs;
    for (int64_t m = most(0, n - 3); m < n - 1; ++m) {
      wait_for(rows[m].finished, rows[m].p1 - rows[m].p0);
    }
    for (int64_t o = p - 1; n > 0 && o <= p; ++o) {
      const Row& before = rows[n - 1];
      const int64_t at = cuts.circle ? (o - before.p0) % count : o - before.p0;
      if (at >= 0 && at < before.p1 - before.p0) wait_for(done[before.jobs + at], 1);
    }
    diamond(s, u, cuts, rows[n], p);
    __atomic_store_n(&done[job], 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&rows[n].finished, 1, __ATOMIC_RELEASE);
  }
  delete[] done;
  delete[] rows;
}

// Keeps the threads of a team on the processors that the process may use, one each, going round
// where they are fewer. The calling thread is let go at the end: what it starts later is not bound.
class Pinned {
 public:
  int error = 0;

  Pinned(int64_t threads, bool wanted) {
    if (!wanted) return;
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) {
      error = errno;
      return;
    }
    bound_ = true;
    const int usable = CPU_COUNT(&allowed_);
#pragma omp parallel num_threads(threads)
    {
      int before = omp_get_thread_num() % usable, cpu = 0;
      while (!CPU_ISSET(cpu, &allowed_) || before-- > 0) ++cpu;
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      if (sched_setaffinity(0, sizeof own, &own) != 0) {
#pragma omp atomic write
        error = errno;
      }
    }
#else
    (void)threads;
    error = ENOSYS;
#endif
  }

  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

#if defined(__linux__)
  ~Pinned() {
    if (bound_) sched_setaffinity(0, sizeof allowed_, &allowed_);
  }

 private:
  cpu_set_t allowed_;
  bool bound_ = false;
#endif
};

}  // namespace

// First touch of the window: pages go to the memory of the threads that will use them. Tiles move
// from thread to thread, so parts of the size of a huge page are dealt out in turns.
extern "C" int outgrid_touch(char* first, int64_t nbytes, int64_t threads, int64_t pin) {
  const Pinned pinned(threads, pin != 0);
  constexpr int64_t part = int64_t{2} << 20, page = 4096;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int64_t at = 0; at < nbytes; at += part) {
    for (int64_t i = at; i < least(at + part, nbytes); i += page) first[i] = 0;
  }
  return pinned.error;
}

// Returns 0, or the error number of what failed before anything was updated.
extern "C" int outgrid_advance(const Slab* slab) {
  const Pinned pinned(slab->threads, slab->pin != 0);
  if (pinned.error != 0) return pinned.error;
  Uniform* const u = new Uniform[slab->depth];
  for (int64_t t = 0; t < slab->depth; ++t) u[t].set(slab->parameters + t * kParameters);
  if (slab->order == 1) {
    by_diamond(*slab, u);
  } else {
    by_level(*slab, u);
  }
  delete[] u;
  return 0;
}
"""
