// The headers that kernels for a device are made of, for `make check`: what CUDA adds to C++ means
// nothing here. Compiled with -DREAL=float, and double.
#include <cmath>

#define __device__
#define __forceinline__ inline
#define __noinline__
#define int64_t device_int64_t  // the headers have their own
#define uint64_t device_uint64_t
using Real = REAL;
using std::fma;
using std::sqrt;
int __float_as_int(float);
float __int_as_float(int);
long long __double_as_longlong(double);
double __longlong_as_double(long long);

#include "cuda/numbers.hpp"
#include "elementary.hpp"
