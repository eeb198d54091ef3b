"""The loops of a kernel: slabs, levels, diamonds. The same text serves every stencil.

A slab is a range of the front. Stage j of level t works on plane ``F - kShift[j] - S*t``; updates
follow those that they read, in any order that respects this.
"""

from __future__ import annotations

SLAB = r"""
namespace {

// What one call advances, all in plane numbers of the sweep. Rings hold addresses of planes.
struct Slab {
  const char* const* const* rings;  // [ring][plane]
  const double* parameters;  // [level - 1][parameter]
  // Sources and receivers: rows of (field, plane, row, column), and [level - 1][place].
  const int64_t* injected;
  const double* amounts;
  const int64_t* sampled;
  double* samples;
  int64_t injections, receptions;
  int64_t planes, rows, columns, row_stride;  // extents; stride of rows in elements
  int64_t first, last;                        // front positions [first, last)
  int64_t depth, base, skew;                  // levels 1..depth, level t in ring (base + t) mod m
  int64_t since;                              // the first level of this call, else 1
  // Level t works on planes, and on rows, [low + rise*t, high + fall*t).
  int64_t plane_low, plane_high, plane_rise, plane_fall;
  int64_t row_low, row_high, row_rise, row_fall;
  int64_t row_offset;                         // elements from a plane's address to its row 0
  int64_t order, tile_rows, tile_planes, tile_columns, threads;
  int64_t pin;  // whether each thread stays on a processor of its own
};

// Rows [y0, y1) and columns [x0, x1) of a plane; x0 and x1 are multiples of kLanes, or the end.
struct Tile {
  int64_t y0, y1, x0, x1;
};

// Cells outside the interior keep their value: copied from level to level like an update.
OG_INLINE void keep(REAL* to, const REAL* from, int64_t stride, const Tile& c) {
  for (int64_t y = c.y0; y < c.y1; ++y) {
    std::memcpy(to + y * stride + c.x0, from + y * stride + c.x0, (c.x1 - c.x0) * sizeof(REAL));
  }
}

OG_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
OG_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The planes and rows that level t of this trip may update.
OG_INLINE int64_t first_plane(const Slab& s, int64_t t) {
  return most(0, s.plane_low + s.plane_rise * t);
}
OG_INLINE int64_t end_plane(const Slab& s, int64_t t) {
  return least(s.planes, s.plane_high + s.plane_fall * t);
}
OG_INLINE int64_t first_row(const Slab& s, int64_t t) {
  return most(0, s.row_low + s.row_rise * t);
}
OG_INLINE int64_t end_row(const Slab& s, int64_t t) {
  return least(s.rows, s.row_high + s.row_fall * t);
}
"""

LOOPS = r"""
// Whether a place is of a field that the stage updates, on planes [z0, z1) of a tile.
OG_INLINE bool holds(const int64_t* at, int stage, int64_t z0, int64_t z1, const Tile& c) {
  return kWriter[at[0]] == stage && at[1] >= z0 && at[1] < z1 && at[2] >= c.y0 && at[2] < c.y1 &&
         at[3] >= c.x0 && at[3] < c.x1;
}

// Sources add to what was just made, then receivers look at it: each place is in one tile.
void points(const Slab& s, int64_t t, int stage, int64_t z0, int64_t z1, const Tile& c) {
  for (int64_t n = 0; n < s.injections; ++n) {
    const int64_t* at = s.injected + 4 * n;
    if (!holds(at, stage, z0, z1, c)) continue;
    const double amount = s.amounts[(t - 1) * s.injections + n];
    plane_of(s, at[0], s.base + t, at[1])[at[2] * s.row_stride + at[3]] += REAL(amount);
  }
  for (int64_t n = 0; n < s.receptions; ++n) {
    const int64_t* at = s.sampled + 4 * n;
    if (!holds(at, stage, z0, z1, c)) continue;
    const REAL* plane = plane_of(s, at[0], s.base + t, at[1]);
    s.samples[(t - 1) * s.receptions + n] = plane[at[2] * s.row_stride + at[3]];
  }
}

// A stage of level t on planes [z0, z1) of a tile.
void level(const Slab& s, const Uniform* u, int64_t t, int stage, int64_t z0, int64_t z1, Tile c) {
  z0 = most(z0, first_plane(s, t)), z1 = least(z1, end_plane(s, t));
  c = {most(c.y0, first_row(s, t)), least(c.y1, end_row(s, t)), most(c.x0, 0),
       least(c.x1, s.columns)};
  if (c.y0 >= c.y1 || c.x0 >= c.x1) return;
  const int64_t a = least(most(c.y0, kLowY), c.y1), b = most(least(c.y1, s.rows - kHighY), a);
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
    z += taken;
  }
  if (s.injections + s.receptions > 0) points(s, t, stage, z0, z1, c);
}

// Each stage over the whole slab before the next; blocks of rows and planes are shared out.
void by_level(const Slab& s, const Uniform* u) {
#pragma omp parallel num_threads(s.threads)
  for (int64_t n = (s.since - 1) * kStages; n < s.depth * kStages; ++n) {
    const int64_t t = 1 + n / kStages;
    const int stage = static_cast<int>(n % kStages);
    const int64_t z0 = most(first_plane(s, t), s.first - kShift[stage] - s.skew * t);
    const int64_t z1 = least(end_plane(s, t), s.last - kShift[stage] - s.skew * t);
    const int64_t y0 = first_row(s, t), y1 = end_row(s, t);
    if (z0 >= z1 || y0 >= y1) continue;
    const int64_t rows = s.tile_rows > 0 ? s.tile_rows : y1 - y0;
    const int64_t blocks = (y1 - y0 + rows - 1) / rows;
    const int64_t lines = (s.tile_columns + kLanes - 1) / kLanes;
    const int64_t length = lines > 0 ? lines * kLanes : s.columns;
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
      // Whole planes: as many shares as threads, cut in y as well where planes are few.
      const int64_t threads = omp_get_num_threads();
      const int64_t cut = groups >= 4 * threads || y1 - y0 == 1 ? 1 : threads;
      const int64_t share = (y1 - y0 + cut - 1) / cut;
#pragma omp for collapse(2) schedule(static)
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t c = 0; c < cut; ++c) {
          const int64_t z = z0 + g * s.tile_planes;
          const Tile tile{y0 + c * share, y0 + (c + 1) * share, 0, s.columns};
          level(s, u, t, stage, z, least(z + s.tile_planes, z1), tile);
        }
      }
    }
  }
}

// A row of diamonds: those of one sum p + q.
struct Row {
  int64_t sum, t0, t1;   // levels [t0, t1]
  int64_t p0, p1, jobs;  // falling strips [p0, p1); jobs of the rows before
  int64_t finished;      // jobs of this row that are done
};

// The diamond where falling strip p crosses rising strip q, in a row of diamonds.
void diamond(const Slab& s, const Uniform* u, int64_t width, const Row& row, int64_t p) {
  const int64_t q = row.sum - p;
  for (int64_t front = s.first; front < s.last; front += s.tile_planes) {
    const int64_t stop = least(front + s.tile_planes, s.last);
    for (int64_t t = row.t0; t <= row.t1; ++t) {
      for (int j = 0; j < kStages; ++j) {
        const int64_t falls = kSlope * t + kFall[j], rises = kSlope * t + kRise[j];
        const int64_t low = most(p * width - falls, rises - (q + 1) * width);
        const int64_t high = least((p + 1) * width - falls, rises - q * width);
        const int64_t back = kShift[j] + s.skew * t;
        const Tile columns{0, s.rows, low, high}, rows{low, high, 0, s.columns};
        if (low < high) {
          level(s, u, t, j, front - back, stop - back, kAcrossColumns ? columns : rows);
        }
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
void by_diamond(const Slab& s, const Uniform* u) {
  const int64_t width = 2 * kSlope * most(1, s.tile_rows / (2 * kSlope));
  int64_t fall = 0, rise = 0, least_sum = kFall[0] + kRise[0], most_sum = least_sum;
  for (int j = 0; j < kStages; ++j) {
    fall = most(fall, kFall[j]), rise = most(rise, kRise[j]);
    least_sum = least(least_sum, kFall[j] + kRise[j]);
    most_sum = most(most_sum, kFall[j] + kRise[j]);
  }
  // Rows that any level may update.
  const int64_t begin = kAcrossColumns ? 0 : least(first_row(s, 1), first_row(s, s.depth));
  const int64_t end = kAcrossColumns ? s.columns : most(end_row(s, 1), end_row(s, s.depth));
  // Cells of a diamond have 2*slope*t + fall + rise between k and k + 2 widths.
  const int64_t k0 = (2 * kSlope * s.since + least_sum) / width - 1;
  const int64_t k1 = (2 * kSlope * s.depth + most_sum) / width + 1;
  Row* const rows = new Row[k1 - k0];
  int64_t jobs = 0;
  for (int64_t k = k0; k < k1; ++k) {
    Row& row = rows[k - k0];
    row = {k, most(s.since, (k * width - most_sum) / (2 * kSlope)),
           least(s.depth, ((k + 2) * width - least_sum) / (2 * kSlope) + 1), 0, 0, jobs, 0};
    row.p0 = (begin + kSlope * row.t0) / width;
    row.p1 = most(row.p0, (end + kSlope * row.t1 + fall) / width + 1);
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
      if (o >= before.p0 && o < before.p1) wait_for(done[before.jobs + o - before.p0], 1);
    }
    diamond(s, u, width, rows[n], p);
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
