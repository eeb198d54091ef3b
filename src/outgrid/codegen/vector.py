"""The vector types and operations that generated kernels use, for any instruction set.

Arithmetic relies on the vector extensions of g++ and clang++; only what they lack is written per
instruction set: the fused multiply-add, which must be fused everywhere for results to be the same
to the bit, and the square root.
"""

from __future__ import annotations

NEAR = r"""
// Vectors of a block, K cells from p. Where all loads straddle two lines, some vectors are cut out
// of aligned ones instead.
template <int Near>
OG_INLINE void keep_near(V (&near)[Near], const REAL* p) {
  for (int n = 0; n < Near; ++n) near[n] = load(p + n * kLanes);
}
template <int K, int N, int Near>
OG_INLINE void read(V (&v)[N], const REAL* p, const V (&near)[Near]) {
  constexpr bool straddles = sizeof(V) == 64 && K % kLanes != 0 && K > -kLanes && K < kLanes;
  for (int n = 0; n < N; ++n) {
    const int at = n - (K < 0);
    if (N > 1 && straddles && at >= 0 && at + 1 < Near) {
      constexpr int rest = (K % kLanes + kLanes) % kLanes;
      v[n] = cut<rest>(near[at], near[at + 1], std::make_integer_sequence<int, kLanes>{});
    } else {
      v[n] = load(p + n * kLanes + K);
    }
  }
}
"""

PRELUDE = (
    r"""
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <omp.h>
#include <sched.h>
#include <unistd.h>
#include <utility>
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__clang__) && defined(__x86_64__)
#include <immintrin.h>  // g++ is asked by its built-in names: the header takes 80 MiB to read
#endif

#if defined(__AVX512F__)
#define OG_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define OG_VECTOR_BYTES 32
#else
#define OG_VECTOR_BYTES 16
#endif
// Functions of the library by their built-in names: reading <cmath> takes a sixth of a compilation.
#define OG_MATH(name) __builtin_##name FLOAT
#define OG_FMA_512 __builtin_ia32_vfmaddSUFFIX512_mask
#define OG_FMA_256 __builtin_ia32_vfmaddSUFFIX256
#define OG_ALIGN_512 __builtin_ia32_alignWORD512_mask
#define OG_TEST_512 __builtin_ia32_ptestmWORD512
#define OG_LANE(a, i) a[i]
#define OG_CALL static inline __attribute__((noinline))
#define OG_INLINE static inline __attribute__((always_inline))
#define OG_VECTORS for (int n = 0; n < kWide; ++n)

namespace {

typedef REAL V __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef REAL Unaligned
    __attribute__((vector_size(OG_VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER M __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef M Truth;  // of a comparison, lane by lane
constexpr int64_t kLanes = OG_VECTOR_BYTES / sizeof(REAL);
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
constexpr int kReach = (FARTHEST + kLanes - 1) / kLanes;  // vectors kept on either side of one

OG_INLINE V load(const REAL* p) { return *reinterpret_cast<const Unaligned*>(p); }
OG_INLINE void store(REAL* p, V v) { *reinterpret_cast<Unaligned*>(p) = v; }
OG_INLINE V all(REAL a) { return a - V{}; }  // a - 0 is a, also for -0

// a * b + c, rounded once.
OG_INLINE V fma(V a, V b, V c) {
#if defined(__AVX512F__) && defined(__clang__)
  if constexpr (sizeof(REAL) == 8) {
    return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
  } else {
    return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  }
#elif defined(__AVX512F__)
  constexpr int rounding = 4;  // as the control register says
  return OG_FMA_512(a, b, c, -1, rounding);
#elif defined(__AVX2__) && defined(__FMA__) && defined(__clang__)
  if constexpr (sizeof(REAL) == 8) {
    return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
  } else {
    return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
#elif defined(__AVX2__) && defined(__FMA__)
  return OG_FMA_256(a, b, c);
#elif defined(__aarch64__)
  if constexpr (sizeof(REAL) == 8) {
    return (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
  } else {
    return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
  }
#else
  V v;
  for (int64_t i = 0; i < kLanes; ++i) v[i] = OG_MATH(fma)(a[i], b[i], c[i]);
  return v;
#endif
}

OG_INLINE V root(V a) {
  V v;
  for (int64_t i = 0; i < kLanes; ++i) v[i] = OG_MATH(sqrt)(a[i]);
  return v;
}

// The second operand unless the first is truly beyond it: this settles NaN and signed zeros.
OG_INLINE V least(V a, V b) { return a < b ? a : b; }
OG_INLINE V most(V a, V b) { return a > b ? a : b; }
OG_INLINE V magnitude(V a) { return a < 0 ? -a : a + REAL(0); }

OG_INLINE REAL fma(REAL a, REAL b, REAL c) { return OG_MATH(fma)(a, b, c); }
OG_INLINE REAL root(REAL a) { return OG_MATH(sqrt)(a); }
OG_INLINE REAL least(REAL a, REAL b) { return a < b ? a : b; }
OG_INLINE REAL most(REAL a, REAL b) { return a > b ? a : b; }
OG_INLINE REAL magnitude(REAL a) { return OG_MATH(fabs)(a); }

// Conditions: all bits of a lane set, or none; for what is uniform, true or false.
OG_INLINE M all(bool a) { return M{} - (a ? 1 : 0); }
OG_INLINE M negated(M a) { return ~a; }
OG_INLINE bool negated(bool a) { return !a; }
OG_INLINE V choose(M c, V a, V b) { return c ? a : b; }
OG_INLINE REAL choose(bool c, REAL a, REAL b) { return c ? a : b; }

// The bits of a number as a word, and back.
OG_INLINE M bits_of(V a) { return (M)a; }
OG_INLINE V real_of(M a) { return (V)a; }
OG_INLINE int64_t bits_of_double(double a) { return __builtin_bit_cast(int64_t, a); }
OG_INLINE double real_of_double(int64_t a) { return __builtin_bit_cast(double, a); }
OG_INLINE double fma_double(double a, double b, double c) { return __builtin_fma(a, b, c); }
OG_INLINE bool any(M a) {
#if defined(__AVX512F__) && !defined(__clang__)
  return OG_TEST_512(a, a, -1) != 0;
#else
  INTEGER found = 0;
  for (int64_t i = 0; i < kLanes; ++i) found |= a[i];
  return found != 0;
#endif
}

// The vector that begins K cells after `here`, cut out of neighbours. A cut may reach beyond the
// nearest ones where vectors are short: kReach of them are kept on either side.
template <int K, int... I>
OG_INLINE V cut(V a, V b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (K + I)...);
#elif defined(__AVX512F__)  // g++ would take a permutation, which destroys an operand
  return (V)OG_ALIGN_512((M)b, (M)a, K, M{}, -1);
#else
  return __builtin_shuffle(a, b, M{(K + I)...});
#endif
}
template <int K>
OG_INLINE V shifted(const V* at) {
  constexpr int n = kLanes, whole = K >= 0 ? K / n : -((-K + n - 1) / n), rest = K - whole * n;
  if constexpr (rest == 0) {
    return at[kReach + whole];
  } else {
    constexpr int first = kReach + whole;
    return cut<rest>(at[first], at[first + 1], std::make_integer_sequence<int, n>{});
  }
}
"""
    + NEAR
    + r"""
// Lanes x, x + 1, ... of a row that lie in [first, last).
template <int... I>
OG_INLINE M lanes(std::integer_sequence<int, I...>) { return M{I...}; }
OG_INLINE M within(int64_t x, int64_t first, int64_t last) {
  const M lane = lanes(std::make_integer_sequence<int, kLanes>{});
  auto bound = [&](int64_t at) -> INTEGER {
    return at < x ? 0 : at > x + kLanes ? kLanes : at - x;
  };
  return (lane >= bound(first)) & (lane < bound(last));
}

}  // namespace
"""
)

SPELLING = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "fma": "fma({0}, {1}, {2})",
    "min": "least({0}, {1})",
    "max": "most({0}, {1})",
    "sqrt": "root({0})",
    "abs": "magnitude({0})",
    "exp": "exp_of({0})",
    "log": "log_of({0})",
    "sin": "sin_of({0})",
    "cos": "cos_of({0})",
    "tanh": "tanh_of({0})",
    "pow": "pow_of({0}, {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "not": "negated({0})",
    "where": "choose({0}, {1}, {2})",
}

# Per type of a field that is not the one computed in: its vectors, which turn into those computed
# with as they are loaded, and back as they are stored. Short whole numbers go through those of 32
# bits, for which processors have instructions.
CONVERTED = r"""
typedef STORED Cells_STORED __attribute__((vector_size(kLanes * sizeof(STORED))));
typedef STORED Loose_STORED
    __attribute__((vector_size(kLanes * sizeof(STORED)), aligned(sizeof(STORED)), may_alias));
typedef WHOLE Wide_STORED __attribute__((vector_size(kLanes * sizeof(WHOLE))));
OG_INLINE V load(const STORED* p) {
  const Cells_STORED v = *reinterpret_cast<const Loose_STORED*>(p);
  return __builtin_convertvector(__builtin_convertvector(v, Wide_STORED), V);
}
OG_INLINE void store(STORED* p, V v) {
  *reinterpret_cast<Loose_STORED*>(p) = __builtin_convertvector(v, Cells_STORED);
}
"""

CELLS = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
}

# Per dtype: the type of a cell, the integer of the same size, how names of instructions end that
# compute with such cells or move words of their size, and what ends names of functions of them.
TYPES = {
    "float32": ("float", "int", "ps", "d", "##f"),
    "float64": ("double", "long long", "pd", "q", ""),
}


def prelude(dtype: str, farthest: int = 0) -> str:
    """C++ that a kernel of ``dtype`` cells begins with, which reads ``farthest`` cells along x."""
    real, integer, suffix, word, ending = TYPES[dtype]
    text = PRELUDE.replace("REAL", real).replace("INTEGER", integer).replace("SUFFIX", suffix)
    text = text.replace("WORD", word).replace(" FLOAT", ending)
    return text.replace("FARTHEST", str(farthest))
