// What one launch is given. `kRings`, how many rings there are, is declared before.
#pragma once

#include "cuda/numbers.hpp"

// One level, all in plane numbers of the sweep. Rings hold addresses of planes on the device.
struct Slab {
  const char* const* rings[kRings];  // [ring][plane]
  const double* parameters;          // of the level
  const Real* const* profiles;       // [profile][index along its axis]
  const int64_t* injected;           // rows of (field, plane, row, column)
  const double* amounts;             // of the level
  const int64_t* sampled;
  double* samples;
  long long* broken;  // the place of the first value seen that is not finite
  int64_t injections, receptions;
  int64_t planes, rows, columns, row_stride;
  int64_t base, t;         // the level is t, in ring (base + t) mod m
  int64_t ring_step;       // 0: all levels read the same coefficients
  int64_t z0, z1, y0, y1;  // what is updated
  int64_t row_offset;      // elements from a plane's address to its row 0
  int64_t deep;            // planes that one thread walks through
  int64_t period;          // so many planes on the first ones come again; or 0
  // Where a launch makes several levels, from t on: the planes low to high of the n-th of them, and
  // what lies between this slab and the one before, and the one behind.
  int64_t low[8], high[8];
  Real* came;
  Real* left;
  int64_t leaving;
};

// The cells of a thread: one column and row, and planes [first, end) through which it walks.
struct Walk {
  int64_t x, y, first, end;
  bool there;
};
OG_INLINE Walk walk(const Slab& s) {
  Walk w;
  w.x = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  w.y = s.y0 + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
  w.first = s.z0 + int64_t(blockIdx.z) * s.deep;
  w.end = w.first + s.deep < s.z1 ? w.first + s.deep : s.z1;
  w.there = w.x < s.columns && w.y < s.y1;
  return w;
}
