// The orders of sweeps of one step: level after level, or all stages of a level behind a front.
#pragma once

#include "cpu/level.hpp"
#include "cpu/totals.hpp"

namespace {

// How many of a thread's shares of a level are taken.
struct alignas(64) Taken {
  int64_t count;
};

// Each stage over planes of the slab before the next; blocks of rows and planes are shared out.
// These are all planes, or so many that what a stage leaves is in a cache when the next one reads
// it: the front passes through a level step by step, and each stage is behind it by as much as it
// needs.
template <class Stencil>
void by_level(const Call<Stencil>& s, bool by_front) {
  constexpr int stages = Stencil::kStages;
  const int64_t parts = 4 * s.threads;  // of what threads share, so that all end at about once
  const int64_t step = !by_front                 ? most(1, s.last - s.first)
                       : Stencil::kAcrossColumns ? s.tile_planes * parts
                                                 : s.tile_planes;
  const int64_t fronts = (s.last - s.first + step - 1) / step, turns = fronts * stages;
  Taken* const taken = new Taken[s.depth * turns * s.threads]{};
  together(s.team, s.threads, [&](int64_t self) {
    for (int64_t n = (s.since - 1) * turns; n < s.depth * turns; ++n) {
      const int64_t t = 1 + n / turns;
      const int stage = static_cast<int>(n % stages);
      const int64_t front = s.first + n % turns / stages * step;
      const int64_t back = behind(s, t, stage);
      const int64_t z0 = most(first_plane(s, t, stage), front - back);
      const int64_t z1 = least(end_plane(s, t, stage), least(front + step, s.last) - back);
      const int64_t y0 = first_row(s, t, stage), y1 = end_row(s, t, stage);
      if (z0 >= z1 || y0 >= y1) continue;
      const int64_t rows = s.tile_rows > 0 ? s.tile_rows : y1 - y0;
      const int64_t blocks = (y1 - y0 + rows - 1) / rows;
      // What is reduced is not cut.
      const int64_t uncut = Stencil::kAcrossColumns ? kLine : s.columns;
      const int64_t unit = Stencil::kReductions > 0 ? uncut : kLanes;
      const int64_t lines = (s.tile_columns + unit - 1) / unit;
      const int64_t length = lines > 0 ? lines * unit : s.columns;
      const int64_t groups = (z1 - z0 + s.tile_planes - 1) / s.tile_planes;
      if (blocks > 1 || lines > 0) {
        // Blocks of rows, through which all planes pass; or of rows, columns and planes.
        const int64_t deep = lines > 0 ? s.tile_planes : z1 - z0;
        const int64_t across = lines > 0 ? (s.columns + length - 1) / length : 1;
        const int64_t shares = (z1 - z0 + deep - 1) / deep * blocks * across;
        int64_t& next = taken[n * s.threads].count;
        for (;;) {
          const int64_t share = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
          if (share >= shares) break;
          const int64_t z = z0 + share / (blocks * across) * deep;
          const int64_t y = y0 + share / across % blocks * rows, x = share % across * length;
          level(s, t, stage, z, least(z + deep, z1), Tile{y, least(y + rows, y1), x, x + length},
                {}, s.tile_stream);
        }
      } else {
        // Whole planes, cut in y as well where they are few. Each thread begins with the planes
        // that it had in the level before, which its caches may hold, and then helps those that are
        // held up, by transfers or another program.
        const int64_t threads = s.threads;
        const int64_t many = by_front ? parts : threads;
        const int64_t cut = groups >= 4 * threads ? 1 : least(many, y1 - y0);
        const int64_t height = ((y1 - y0 + cut - 1) / cut + kFold - 1) / kFold * kFold;
        const int64_t shares = groups * cut;
        for (int64_t i = 0; i < threads; ++i) {
          const int64_t owner = (self + i) % threads;
          const int64_t begin = shares * owner / threads, end = shares * (owner + 1) / threads;
          int64_t& next = taken[n * s.threads + owner].count;
          for (;;) {
            const int64_t share = begin + __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
            if (share >= end) break;
            const int64_t z = z0 + share / cut * s.tile_planes, y = y0 + share % cut * height;
            level(s, t, stage, z, least(z + s.tile_planes, z1), Tile{y, y + height, 0, s.columns},
                  {}, s.tile_stream);
          }
        }
      }
      if (s.tile_stream) settle();
      meet(s.team, s.threads);
    }
  });
  delete[] taken;
}

}  // namespace
