// Cells around which no field exists that exists in a region only, and all others.
#pragma once

#include "cpu/slab.hpp"
#include "cpu/tile.hpp"

namespace {

// 1 in columns that are updated, else 0; in vectors that are at no edge all are.
template <bool Edge>
OG_INLINE V inside_row(int64_t x, int64_t first, int64_t last) {
  if constexpr (!Edge) return all(Real(1));
  return within(x, first, last) ? all(Real(1)) : V{};
}

// The part of an axis, of those that begin at `begins`, that an index lies in.
OG_INLINE int64_t part_of(const int64_t* begins, int64_t parts, int64_t i) {
  int64_t n = parts - 1;
  while (n > 0 && begins[n] > i) --n;
  return n;
}

// Whether planes [z, z + n) lie in one part, or there are no parts.
OG_INLINE bool in_one_part(const Slab& s, int64_t z, int64_t n) {
  if (s.region_planes == 0) return true;
  auto part = [&](int64_t at) {
    return part_of(s.region_parts, s.region_planes, s.period > 0 ? at % s.period : at);
  };
  for (int64_t at = z + 1; at < z + n; ++at) {
    if (part(at) != part(z)) return false;
  }
  return true;
}

// The bits of what the table says of a part that are kinds of fields, which are not there. Those
// above them are fields to be cleared.
constexpr int64_t kKinds = 255;

// Visits planes [z, z + n) of a tile in parts, each with which of the `kinds` the table says are
// absent in all of its planes, and what is to be cleared there.
template <class Visit>
OG_INLINE void by_region(const Slab& s, int64_t z, int64_t n, const Tile& c, int64_t kinds,
                         const Visit& visit) {
  if (s.region_planes == 0) return visit(c, 0);
  const int64_t *planes = s.region_parts, *rows = planes + s.region_planes;
  const int64_t *columns = rows + s.region_rows, *outside = columns + s.region_columns;
  auto flags_of = [&](int64_t j, int64_t i) {
    int64_t absent = kinds, dirty = 0;
    for (int64_t at = z; at < z + n; ++at) {
      const int64_t turned = s.period > 0 ? at % s.period : at;
      const int64_t k = part_of(planes, s.region_planes, turned);
      const int64_t flags = outside[(k * s.region_rows + j) * s.region_columns + i];
      absent &= flags, dirty |= flags & ~kKinds;
    }
    return absent == 0 ? absent : absent | dirty;
  };
  for (int64_t y = c.y0, y1 = c.y1; y < c.y1; y = y1) {
    const int64_t turn = s.row_period > 0 ? y / s.row_period * s.row_period : 0;
    const int64_t j = part_of(rows, s.region_rows, y - turn);
    y1 = j + 1 < s.region_rows ? least(c.y1, turn + rows[j + 1])
         : s.row_period > 0    ? least(c.y1, turn + s.row_period)
                               : c.y1;
    for (int64_t x = c.x0, x1 = c.x1; x < c.x1; x = x1) {
      int64_t i = part_of(columns, s.region_columns, x);
      const int64_t flags = flags_of(j, i);
      while (i + 1 < s.region_columns && columns[i + 1] < c.x1 && flags_of(j, i + 1) == flags) ++i;
      x1 = i + 1 < s.region_columns ? least(c.x1, columns[i + 1]) : c.x1;
      visit(Tile{y, y1, x, x1}, flags);
    }
  }
}

}  // namespace
