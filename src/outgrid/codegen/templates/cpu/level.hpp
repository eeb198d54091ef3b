// One stage of one level in one tile.
#pragma once

#include "cpu/call.hpp"
#include "cpu/tile.hpp"
#include "cpu/visits.hpp"

namespace {

// Whether a tile grows from level to level, at its lowest rows and its highest ones, and reads
// there what it has not made. `ahead` are the planes to the next step of the front, 0 where none
// comes.
struct Growth {
  int64_t ahead = 0;
  bool low = false, high = false, begins = false;
};

// A stage of level t on planes [z0, z1) of a tile. In two dimensions there are very many calls: one
// that is not inlined costs a seventh of the time there, and so would a tile passed by value.
template <class Stencil>
OG_INLINE void level(const Call<Stencil>& s, int64_t t, int stage, int64_t z0, int64_t z1,
                     const Tile& tile, const Growth& growth = {}, bool past = false) {
  z0 = most(z0, first_plane(s, t, stage)), z1 = least(z1, end_plane(s, t, stage));
  const Tile c{most(tile.y0, first_row(s, t, stage)), least(tile.y1, end_row(s, t, stage)),
               most(tile.x0, 0), least(tile.x1, s.columns)};
  if (c.y0 >= c.y1 || c.x0 >= c.x1) return;
  if (s.downward) {  // from here on planes are those of the grid
    const int64_t lowest = streamed(s, z1 - 1);
    z1 = lowest + z1 - z0, z0 = lowest;
  }
  // Folded rows of which some are fixed are updated, and keep these.
  const int64_t inner = Stencil::kLowY / kFold * kFold;
  const int64_t outer = (s.rows - Stencil::kHighY + kFold - 1) / kFold * kFold;
  const int64_t a = least(most(c.y0, inner), c.y1);
  const int64_t b = most(least(c.y1, outer), a);
  if constexpr (Stencil::kReductions > 0) {
    const int64_t own_z0 = most(most(z0, Stencil::kLowZ), s.own_z0);
    const int64_t own_z1 = least(least(z1, s.planes - Stencil::kHighZ), s.own_z1);
    const int64_t own_a = most(a, s.own_y0), own_b = least(b, s.own_y1);
    if (own_z0 < own_z1 && own_a < own_b) {
      Stencil::reduce(s, s.uniform[t - 1], t, stage, own_z0, own_z1,
                      Tile{own_a, own_b, c.x0, c.x1});
    }
  }
  // Rows [a, low) and [high, b) lie at growing edges.
  const int64_t ahead = s.downward ? -growth.ahead : growth.ahead;
  const bool grows = ahead != 0;
  const int64_t low = grows && growth.low ? least(b, most(a, tile.y0 + Stencil::kSlope)) : a;
  const int64_t high = grows && growth.high ? most(low, least(b, tile.y1 - Stencil::kSlope)) : b;
  const bool looks = s.watch > 0 && t >= s.watch;
  for (int64_t z = z0; z < z1;) {
    if (z < Stencil::kLowZ || z >= s.planes - Stencil::kHighZ) {
      Stencil::keep_tile(s, t, stage, z, c);
      ++z;
      continue;
    }
    const int64_t n = least(least(z1, s.planes - Stencil::kHighZ) - z, s.tile_group);
    auto update = [&](int64_t y0, int64_t y1, const Way& way) __attribute__((always_inline)) {
      const Tile rows{y0, y1, c.x0, c.x1};
      return Stencil::update_planes(s, s.uniform[t - 1], t, stage, z, n, rows, way);
    };
    if (a < low) update(a, low, Way{ahead, -1, growth.begins});
    const int64_t taken = update(low, high, Way{0, 0, false, past && !looks});
    if (high < b) update(high, b, Way{ahead, 1, growth.begins});
    for (int64_t i = z; i < z + taken; ++i) {
      if (c.y0 < a) Stencil::keep_tile(s, t, stage, i, Tile{c.y0, a, c.x0, c.x1});
      if (b < c.y1) Stencil::keep_tile(s, t, stage, i, Tile{b, c.y1, c.x0, c.x1});
    }
    if (looks) {  // now, while it is in the nearest cache
      Stencil::for_cells([&](auto kind) { look<decltype(kind)>(s, t, stage, z, z + taken, c); });
    }
    z += taken;
  }
  Stencil::for_cells([&](auto kind) {
    using Cell = decltype(kind);
    if (s.injections + s.receptions > 0) points<Cell>(s, t, stage, z0, z1, c);
    if (looks && s.injections > 0) look<Cell>(s, t, stage, z0, z1, c);
    if (s.snapshots > 0) snapshots<Cell>(s, t, stage, z0, z1, c);
  });
}

}  // namespace
