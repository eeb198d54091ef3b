// The order of sweeps of many steps: diamonds, level by level in each.
#pragma once

#include <sched.h>

#include "cpu/level.hpp"

namespace {

OG_INLINE int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
OG_INLINE int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Where strips of tiles begin, in cells: `count` strips to each `length`, on whole units. On a line
// that is one strip and its width. On a circle it is all of them and the way round, from which so
// many strips as are wanted need not be equal parts: some are a unit wider than others.
struct Cuts {
  int64_t length, count, unit;
  bool circle;
  int64_t at(int64_t n) const { return floor_div(n * (length / unit), count) * unit; }
};

// Diamonds of about `width` cells close round a circle, if it is here as a whole and not in strips.
// What a last part of a unit holds belongs to the unit before it, so that no unit is narrower than
// a step reaches.
template <class Stencil>
Cuts cuts_of(const Call<Stencil>& s, int64_t width) {
  if (!Stencil::kCircle || s.row_period > 0) return {width, 1, Stencil::kUnit, false};
  const int64_t length =
      most(1, (Stencil::kAcrossColumns ? s.columns : s.rows) / Stencil::kUnit) * Stencil::kUnit;
  return {length, ceil_div(length, width), Stencil::kUnit, true};
}

// How far an edge of columns in three dimensions has fallen for a stage, `levels` after it began.
template <class Stencil>
OG_INLINE int64_t fallen(int64_t levels, int stage) {
  return Stencil::kColumnSlope * levels + Stencil::kColumnFall[stage];
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

// One step of the front, through all levels of a diamond or of a band of it, the `lowest` or
// another one. While a diamond widens, each level reads cells beside those of the level before,
// which other diamonds made long ago. They may be fetched one step of the front ahead: across
// columns before the level, else with the rows at the edge.
template <class Stencil>
OG_INLINE void step(const Call<Stencil>& s, const Cuts& cuts, const Row& row, const Lozenge& edges,
                    int64_t front, int64_t x, int64_t length, bool lowest) {
  constexpr int64_t slope = Stencil::kSlope;
  const int64_t stop = least(front + s.tile_planes, s.last);
  const int64_t next = least(stop + s.tile_planes, s.last);
  for (int64_t t = row.t0; t <= row.t1; ++t) {
    for (int j = 0; j < Stencil::kStages; ++j) {
      const int64_t falls = slope * t + Stencil::kFall[j], rises = slope * t + Stencil::kRise[j];
      const int64_t low = most(edges.p0 - falls, rises - edges.q1);
      const int64_t high = least(edges.p1 - falls, rises - edges.q0);
      const int64_t back = behind(s, t, j), past = fallen<Stencil>(t - row.t0, j);
      // On a circle cells are counted from 0 again behind its end.
      for (int64_t a = low, b = high; a < high; a = b, b = high) {
        int64_t begin = a, end = high;
        if (cuts.circle) {
          const int64_t turn = floor_div(a, cuts.length) * cuts.length;
          b = least(high, turn + cuts.length);
          begin = a - turn;
          end = b - turn < cuts.length ? b - turn : Stencil::kAcrossColumns ? s.columns : s.rows;
        }
        if constexpr (Stencil::kAcrossColumns) {
          const int64_t z0 = stop - back, z1 = next - back;
          const bool below = s.tile_fetch && a == edges.p0 - falls;
          const bool above = s.tile_fetch && b == rises - edges.q0;
          if (below) Stencil::template fetch_ahead<-1>(s, t, j, z0, z1, begin);
          if (above) Stencil::template fetch_ahead<1>(s, t, j, z0, z1, end);
          level(s, t, j, front - back, stop - back, Tile{0, s.rows, begin, end});
        } else {
          const Tile tile{begin, end, x - past, x + length - past};
          Growth growth;
          if (s.tile_fetch && stop + s.tile_planes <= s.last) {
            growth = {s.tile_planes, lowest && a == edges.p0 - falls, b == rises - edges.q0,
                      t == row.t0};
          }
          level(s, t, j, front - back, stop - back, tile, growth);
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
template <class Stencil>
void diamond(const Call<Stencil>& s, const Cuts& cuts, const Row& row, int64_t p) {
  const int64_t q = row.sum - p;
  const Lozenge edges{cuts.at(p), cuts.at(p + 1), cuts.at(q), cuts.at(q + 1)};
  int64_t end_x = s.columns;
  for (int j = 0; j < Stencil::kStages; ++j) {
    end_x = most(end_x, s.columns + fallen<Stencil>(row.t1 - row.t0, j));
  }
  const int64_t parts = s.tile_columns > 0 ? ceil_div(end_x, s.tile_columns) : 1;
  const int64_t length =
      ceil_div(ceil_div(end_x, parts), Stencil::kColumnUnit) * Stencil::kColumnUnit;
  const int64_t rows = s.tile_band > 0 ? s.tile_band : edges.p1 - edges.p0;
  for (int64_t x = 0; x < end_x; x += length) {
    for (int64_t front = s.first; front < s.last; front += s.tile_planes) {
      for (int64_t low = edges.p0; low < edges.p1; low += rows) {
        const Lozenge band{low, least(low + rows, edges.p1), edges.q0, edges.q1};
        step(s, cuts, row, band, front, x, length, low == edges.p0);
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
template <class Stencil>
void by_diamond(const Call<Stencil>& s) {
  constexpr int64_t slope = Stencil::kSlope;
  constexpr int stages = Stencil::kStages;
  constexpr bool columns = Stencil::kAcrossColumns;
  const int64_t width = 2 * slope * most(1, s.tile_rows / (2 * slope));
  const Cuts cuts = cuts_of(s, width);
  int64_t fall = 0, rise = 0;
  int64_t least_sum = Stencil::kFall[0] + Stencil::kRise[0], most_sum = least_sum;
  for (int j = 0; j < stages; ++j) {
    fall = most(fall, Stencil::kFall[j]), rise = most(rise, Stencil::kRise[j]);
    least_sum = least(least_sum, Stencil::kFall[j] + Stencil::kRise[j]);
    most_sum = most(most_sum, Stencil::kFall[j] + Stencil::kRise[j]);
  }
  // Rows that any level may update.
  int64_t begin = columns ? 0 : s.rows, end = columns ? s.columns : 0;
  for (int j = 0; j < stages && !columns; ++j) {
    begin = least(begin, least(first_row(s, 1, j), first_row(s, s.depth, j)));
    end = most(end, most(end_row(s, 1, j), end_row(s, s.depth, j)));
  }
  // A cell of strips p and q has 2*slope*t + fall + rise = d with, in units, (d + 1) * count/length
  // in (p + q, p + q + 2].
  const int64_t units = cuts.length / cuts.unit, count = cuts.count;
  auto sums = [&](int64_t d) { return ceil_div((d / cuts.unit + 1) * count, units); };
  const int64_t k0 = sums(2 * slope * s.since + least_sum) - 2;
  const int64_t k1 = sums(2 * slope * s.depth + most_sum);
  Row* const rows = new Row[k1 - k0];
  int64_t jobs = 0;
  for (int64_t k = k0; k < k1; ++k) {
    Row& row = rows[k - k0];
    const int64_t t0 = most(s.since, (cuts.at(k) - most_sum) / (2 * slope));
    const int64_t t1 = least(s.depth, (cuts.at(k + 2) - least_sum) / (2 * slope));
    row = {k, t0, t1, 0, 0, jobs, 0};
    if (cuts.circle) {  // a row begins half a diamond on: what its first waits for was taken early
      row.p0 = k, row.p1 = k + count;
    } else {
      row.p0 = (begin + slope * row.t0) / width;
      row.p1 = most(row.p0, (end + slope * row.t1 + fall) / width + 1);
    }
    jobs += row.p1 - row.p0;
  }
  int64_t* const done = new int64_t[jobs]{};
  int64_t next = 0;
  together(s.team, s.threads, [&](int64_t) {
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
      diamond(s, cuts, rows[n], p);
      __atomic_store_n(&done[job], 1, __ATOMIC_RELEASE);
      __atomic_fetch_add(&rows[n].finished, 1, __ATOMIC_RELEASE);
    }
  });
  delete[] done;
  delete[] rows;
}

}  // namespace
