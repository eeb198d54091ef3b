// The headers of kernels for a device around the smallest stencil, for `make check`: what CUDA adds
// to C++ means next to nothing here. Compiled with -DREAL=float, and double.
#include <cmath>

#define __device__
#define __forceinline__ inline
#define __noinline__
#define int64_t device_int64_t  // the headers have their own
#define uint64_t device_uint64_t
struct Index {
  unsigned x, y, z;
};
extern const Index threadIdx, blockIdx, blockDim;
using std::fma;
using std::rint;
using std::sqrt;
int __float_as_int(float);
float __int_as_float(int);
long long __double_as_longlong(double);
double __longlong_as_double(long long);
void atomicMin(long long*, long long);

using Real = REAL;
constexpr int kRings = 2;

#include "cuda/visits.hpp"
#include "elementary.hpp"

// One field, halved by one stage.
struct Stencil {
  static constexpr int kStages = 1;
  static constexpr int64_t kLowZ = 1, kLowY = 1, kLowX = 1, kHighZ = 1, kHighY = 1, kHighX = 1;
  static constexpr int64_t kFields = 1;
  OG_INLINE int writer(int64_t) { return 0; }
  OG_INLINE int cell_kind(int64_t) { return kKind<Real>; }
  OG_INLINE void* plane_of(const Slab& s, int64_t, int64_t level, int64_t z) {
    return (Real*)s.rings[level % 2][z] + s.row_offset;
  }
};

void launched(const Slab s) {
  points<Real, Stencil>(s, 0);
  watch<Real, Stencil>(s, 0);
}
