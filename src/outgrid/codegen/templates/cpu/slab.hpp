// What one call of a kernel is given.
#pragma once

#include <cstdint>

#include "cpu/team.hpp"

namespace {

// Indices [first, end) of an axis, by steps.
struct Part {
  int64_t first, end, step;
  int64_t count() const { return (end - first + step - 1) / step; }
};

// Where bytes go that are kept: `nbytes` of them `at` bytes into the file of that number. From any
// thread; the memory is free when this returns.
struct Outlet {
  void (*put)(Outlet*, int64_t file, int64_t at, const void* from, int64_t nbytes);
};

// Cells of a field that are kept in a file, as cells of a kind, after step `begin` and every so
// many; the first of them `offset` bytes into it.
struct Snapshot {
  int64_t field, file, kind, begin, every, offset;
  Part z, y, x;
};

// What one call advances, all in plane numbers of the sweep. Rings hold addresses of planes.
struct Slab {
  const char* const* const* rings;  // [ring][plane]
  const double* parameters;         // [level - 1][parameter]
  const Real* const* profiles;      // [profile][index along its axis]
  // Sources and receivers: rows of (field, plane, row, column), and [level - 1][place].
  const int64_t* injected;
  const double* amounts;
  const int64_t* sampled;
  double* samples;
  const Snapshot* kept;
  Outlet* outlet;  // for snapshots
  const Team* team;
  int64_t* totals;  // [level - 1][reduction][kCells]
  // The place, as `place` counts them, of the first value seen that is no finite number.
  int64_t* broken;
  const int64_t* plane_shifts;  // [stage]: so much higher does a stage begin, then: and end
  const int64_t* row_shifts;
  int64_t injections, receptions, snapshots;
  int64_t made;                               // steps before level 1, as snapshots count them
  int64_t planes, rows, columns, row_stride;  // extents; stride of rows in elements
  int64_t first, last;                        // front positions [first, last)
  int64_t depth, base, skew;                  // levels 1..depth, level t in ring (base + t) mod m
  int64_t since;                              // the first level of this call, else 1
  int64_t ring_step;                          // rings from those of a level on to the next one's
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
  int64_t row_offset;  // elements from a plane's address to its row 0
  // Stride of rows of fields that are kept in some columns only, and these, [first, end) each.
  // Where all of a row is kept, it is that of the others.
  int64_t narrow_stride;
  const int64_t* narrow_columns;
  int64_t narrow_parts;
  // Where planes, rows and columns are cut by regions, in so many parts; then, for each part of the
  // grid, 0 if it is near a region, else 1 and the bits of the fields to be cleared. 0 planes: all
  // is near one.
  const int64_t* region_parts;
  int64_t region_planes, region_rows, region_columns;
  int64_t order, tile_rows, tile_planes, tile_columns, tile_band, threads;
  int64_t tile_group;  // planes that a row is updated in at once, at most
  // Whether edges of diamonds are fetched ahead, and sweeps of one step stored past the caches.
  int64_t tile_fetch, tile_stream;
  int64_t pin;  // whether each thread stays on a processor of its own
};

// A plane of the stream as the grid counts it, or the other way round.
static inline int64_t streamed(const Slab& s, int64_t z) {
  return s.downward ? s.planes - 1 - z : z;
}

// The plane nearest to z that there is.
static inline int64_t inside(const Slab& s, int64_t z) {
  return z < 0 ? 0 : z < s.planes ? z : s.planes - 1;
}

}  // namespace
