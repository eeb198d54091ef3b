// Operations on the numbers of a thread, in the place of the vectors of a processor. `Real`, float
// or double, is declared before.
#pragma once

#include "cuda/words.hpp"
#include "stored.hpp"

#define OG_LANE(a, i) a

OG_INLINE Real root(Real a) { return sqrt(a); }
// The second operand unless the first is truly beyond it: this settles NaN and signed zeros.
OG_INLINE Real least(Real a, Real b) { return a < b ? a : b; }
OG_INLINE Real most(Real a, Real b) { return a > b ? a : b; }
OG_INLINE Real magnitude(Real a) { return a < 0 ? -a : a + Real(0); }
OG_INLINE Real nearest(Real a) { return rint(a); }
OG_INLINE bool negated(bool a) { return !a; }
OG_INLINE Real choose(bool c, Real a, Real b) { return c ? a : b; }

// For elementary functions: one number where the kernel of a processor has a vector.
template <class Number>
struct Words;
template <>
struct Words<float> {
  typedef int Integer;
  OG_INLINE int of(float a) { return __float_as_int(a); }
  OG_INLINE float number(int a) { return __int_as_float(a); }
};
template <>
struct Words<double> {
  typedef long long Integer;
  OG_INLINE long long of(double a) { return __double_as_longlong(a); }
  OG_INLINE double number(long long a) { return __longlong_as_double(a); }
};
typedef Words<Real>::Integer Integer;
typedef Real V;
typedef Integer M;
typedef bool Truth;
constexpr int kLanes = 1;
constexpr bool kDouble = sizeof(Real) == 8;
OG_INLINE V all(Real a) { return a; }
OG_INLINE bool any(Truth a) { return a; }
OG_INLINE M bits_of(V a) { return Words<Real>::of(a); }
OG_INLINE V real_of(M a) { return Words<Real>::number(a); }
OG_INLINE int64_t bits_of_double(double a) { return __double_as_longlong(a); }
OG_INLINE double real_of_double(int64_t a) { return __longlong_as_double(a); }
