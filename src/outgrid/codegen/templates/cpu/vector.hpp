// The vectors that a kernel computes with, and operations on them and on single numbers, for any
// instruction set. `Real`, float or double, is declared before.
//
// Arithmetic relies on the vector extensions of g++ and clang++; only what they lack is written per
// instruction set: the fused multiply-add, which must be fused everywhere for results to be the
// same to the bit, and the cut out of two vectors.
//
// Everything is of this translation unit alone: several kernels live in one process.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/words.hpp"
#include "stored.hpp"
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
#define OG_LANE(a, i) a[i]
#define OG_VECTORS for (int n = 0; n < kWide; ++n)

namespace {

using Integer = std::conditional_t<sizeof(Real) == 8, long long, int>;
typedef Real V __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef Real Unaligned
    __attribute__((vector_size(OG_VECTOR_BYTES), aligned(sizeof(Real)), may_alias));
typedef Integer M __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef M Truth;  // of a comparison, lane by lane
constexpr int64_t kLanes = OG_VECTOR_BYTES / sizeof(Real);

// Rows that share a vector: it has `kAcross` cells of each of `kFold` neighbouring rows, one row
// after the other. A group of so many rows lies in the memory of these, vector after vector.
#ifndef OG_FOLD
#define OG_FOLD 1
#else
static_assert(OG_FOLDED_BYTES == OG_VECTOR_BYTES, "rows are folded into vectors of this length");
#endif
constexpr int64_t kFold = OG_FOLD, kAcross = kLanes / kFold;

// How many cells from the first one of a plane a cell lies.
OG_INLINE int64_t place_of(int64_t stride, int64_t y, int64_t x) {
  if constexpr (kFold == 1) return y * stride + x;
  const int64_t row = y % kFold;
  return (y - row) * stride + x / kAcross * kLanes + row * kAcross + x % kAcross;
}
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
constexpr bool kDouble = sizeof(Real) == 8;

// The vectors by the names that built-in functions give them.
typedef double Doubles __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef float Floats __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef long long Longs __attribute__((vector_size(OG_VECTOR_BYTES)));
typedef int Ints __attribute__((vector_size(OG_VECTOR_BYTES)));

// Vectors of fields that are kept in another type than the one computed in: they turn into those
// computed with as they are loaded, and back as they are stored. Short whole numbers go through
// those of 32 bits, for which processors have instructions.
template <class Cell>
struct Kept {
  using Whole = std::conditional_t<std::is_floating_point_v<Cell>, Cell, int32_t>;
  typedef Cell Cells __attribute__((vector_size(kLanes * sizeof(Cell))));
  typedef Cell Loose
      __attribute__((vector_size(kLanes * sizeof(Cell)), aligned(sizeof(Cell)), may_alias));
  typedef Whole Wide __attribute__((vector_size(kLanes * sizeof(Whole))));
};

// Halves are of problems that are computed in floats.
struct Lanes {
  OG_INLINE M bits(V a) { return (M)a; }
  OG_INLINE V floats(M a) { return (V)a; }
};
using Packed = Kept<uint16_t>;

// What the bits of a cell of 16 mean, void for other cells.
template <class Cell>
struct MeaningOf {
  using type = void;
};
template <class Meaning>
struct MeaningOf<Short<Meaning>> {
  using type = Meaning;
};
template <class Cell>
constexpr bool kIsShort = !std::is_void_v<typename MeaningOf<Cell>::type>;

template <class Cell>
OG_INLINE V load(const Cell* p) {
  if constexpr (std::is_same_v<Cell, Real>) {
    return *reinterpret_cast<const Unaligned*>(p);
  } else if constexpr (kIsShort<Cell>) {
    using Meaning = typename MeaningOf<Cell>::type;
    const Packed::Cells v = *reinterpret_cast<const Packed::Loose*>(p);
    return (V)Meaning::widened(__builtin_convertvector(v, M), Lanes());
  } else {
    using Kind = Kept<Cell>;
    const typename Kind::Cells v = *reinterpret_cast<const typename Kind::Loose*>(p);
    return __builtin_convertvector(__builtin_convertvector(v, typename Kind::Wide), V);
  }
}

template <class Cell>
OG_INLINE void store(Cell* p, V v) {
  if constexpr (std::is_same_v<Cell, Real>) {
    *reinterpret_cast<Unaligned*>(p) = v;
  } else if constexpr (kIsShort<Cell>) {
    const M bits = MeaningOf<Cell>::type::narrowed((M)v, Lanes());
    *reinterpret_cast<Packed::Loose*>(p) = __builtin_convertvector(bits, Packed::Cells);
  } else {
    using Kind = Kept<Cell>;
    const auto wide = __builtin_convertvector(v, typename Kind::Wide);
    *reinterpret_cast<typename Kind::Loose*>(p) =
        __builtin_convertvector(wide, typename Kind::Cells);
  }
}

// Stores a vector past the caches, at whole vectors: a line is not read before it is written over.
OG_INLINE void store_past(Real* p, V v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<V*>(p));
#elif defined(__AVX512F__)
  if constexpr (kDouble) {
    __builtin_ia32_movntpd512(reinterpret_cast<double*>(p), (Doubles)v);
  } else {
    __builtin_ia32_movntps512(reinterpret_cast<float*>(p), (Floats)v);
  }
#elif defined(__AVX2__)
  if constexpr (kDouble) {
    __builtin_ia32_movntpd256(reinterpret_cast<double*>(p), (Doubles)v);
  } else {
    __builtin_ia32_movntps256(reinterpret_cast<float*>(p), (Floats)v);
  }
#else
  store(p, v);
#endif
}

// Orders what was stored past the caches before what is stored from here on.
OG_INLINE void settle() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

OG_INLINE V all(Real a) { return a - V{}; }  // a - 0 is a, also for -0

// Functions of the library by their built-in names: reading <cmath> takes a sixth of a compilation.
OG_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
OG_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OG_INLINE double root(double a) { return __builtin_sqrt(a); }
OG_INLINE float root(float a) { return __builtin_sqrtf(a); }
OG_INLINE double magnitude(double a) { return __builtin_fabs(a); }
OG_INLINE float magnitude(float a) { return __builtin_fabsf(a); }

// a * b + c, rounded once.
OG_INLINE V fma(V a, V b, V c) {
#if defined(__AVX512F__) && defined(__clang__)
  if constexpr (kDouble) {
    return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
  } else {
    return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  }
#elif defined(__AVX512F__)
  constexpr int rounding = 4;  // as the control register says
  if constexpr (kDouble) {
    return (V)__builtin_ia32_vfmaddpd512_mask((Doubles)a, (Doubles)b, (Doubles)c, -1, rounding);
  } else {
    return (V)__builtin_ia32_vfmaddps512_mask((Floats)a, (Floats)b, (Floats)c, -1, rounding);
  }
#elif defined(__AVX2__) && defined(__FMA__) && defined(__clang__)
  if constexpr (kDouble) {
    return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
  } else {
    return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (kDouble) {
    return (V)__builtin_ia32_vfmaddpd256((Doubles)a, (Doubles)b, (Doubles)c);
  } else {
    return (V)__builtin_ia32_vfmaddps256((Floats)a, (Floats)b, (Floats)c);
  }
#elif defined(__aarch64__)
  if constexpr (kDouble) {
    return (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
  } else {
    return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
  }
#else
  V v;
  for (int64_t i = 0; i < kLanes; ++i) v[i] = fma(a[i], b[i], c[i]);
  return v;
#endif
}

// v * 2^n for whole n, rounded once.
#if defined(__AVX512F__)
#define OG_SCALED scaled_once
OG_INLINE V scaled_once(V v, V n) {
#if defined(__clang__)
  if constexpr (kDouble) {
    return (V)_mm512_scalef_pd((__m512d)v, (__m512d)n);
  } else {
    return (V)_mm512_scalef_ps((__m512)v, (__m512)n);
  }
#else
  constexpr int rounding = 4;  // as the control register says
  if constexpr (kDouble) {
    return (V)__builtin_ia32_scalefpd512_mask((Doubles)v, (Doubles)n, Doubles{}, -1, rounding);
  } else {
    return (V)__builtin_ia32_scalefps512_mask((Floats)v, (Floats)n, Floats{}, -1, rounding);
  }
#endif
}
#endif

OG_INLINE V root(V a) {
  V v;
  for (int64_t i = 0; i < kLanes; ++i) v[i] = root(a[i]);
  return v;
}

// The second operand unless the first is truly beyond it: this settles NaN and signed zeros. That
// is one instruction, which g++ does not find.
OG_INLINE V least(V a, V b) {
#if defined(__AVX512F__) && !defined(__clang__)
  constexpr int rounding = 4;
  if constexpr (kDouble) {
    return (V)__builtin_ia32_minpd512_mask((Doubles)a, (Doubles)b, Doubles{}, -1, rounding);
  } else {
    return (V)__builtin_ia32_minps512_mask((Floats)a, (Floats)b, Floats{}, -1, rounding);
  }
#else
  return a < b ? a : b;
#endif
}
OG_INLINE V most(V a, V b) {
#if defined(__AVX512F__) && !defined(__clang__)
  constexpr int rounding = 4;
  if constexpr (kDouble) {
    return (V)__builtin_ia32_maxpd512_mask((Doubles)a, (Doubles)b, Doubles{}, -1, rounding);
  } else {
    return (V)__builtin_ia32_maxps512_mask((Floats)a, (Floats)b, Floats{}, -1, rounding);
  }
#else
  return a > b ? a : b;
#endif
}
OG_INLINE V magnitude(V a) { return (V)((M)a & ~(Integer(1) << (8 * sizeof(Real) - 1))); }

OG_INLINE Real least(Real a, Real b) { return a < b ? a : b; }
OG_INLINE Real most(Real a, Real b) { return a > b ? a : b; }
OG_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
OG_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The nearest whole number, the even one of two: a sum that has no room for what is behind the
// point. Numbers from kWhole on are whole, and the sign of those that become 0 stays.
constexpr Real kWhole = Real(kDouble ? 0x1p+52 : 0x1p+23);
OG_INLINE V nearest(V a) {
  const V size = magnitude(a), near = (size + kWhole) - kWhole;
  const M sign = (M)a & (Integer(1) << (8 * sizeof(Real) - 1));
  return size < kWhole ? (V)((M)near | sign) : a;
}
OG_INLINE Real nearest(Real a) {
  const Real size = magnitude(a), near = (size + kWhole) - kWhole;
  const Real with_sign = kDouble ? Real(__builtin_copysign(double(near), double(a)))
                                 : Real(__builtin_copysignf(float(near), float(a)));
  return size < kWhole ? with_sign : a;
}

// Conditions: all bits of a lane set, or none; for what is uniform, true or false.
OG_INLINE M all(bool a) { return M{} - (a ? 1 : 0); }
OG_INLINE M negated(M a) { return ~a; }
OG_INLINE bool negated(bool a) { return !a; }
OG_INLINE V choose(M c, V a, V b) { return c ? a : b; }
OG_INLINE Real choose(bool c, Real a, Real b) { return c ? a : b; }

// The bits of a number as a word, and back.
OG_INLINE M bits_of(V a) { return (M)a; }
OG_INLINE V real_of(M a) { return (V)a; }
OG_INLINE int64_t bits_of_double(double a) { return __builtin_bit_cast(int64_t, a); }
OG_INLINE double real_of_double(int64_t a) { return __builtin_bit_cast(double, a); }
OG_INLINE bool any(M a) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (kDouble) {
    return __builtin_ia32_ptestmq512((Longs)a, (Longs)a, -1) != 0;
  } else {
    return __builtin_ia32_ptestmd512((Ints)a, (Ints)a, -1) != 0;
  }
#else
  Integer found = 0;
  for (int64_t i = 0; i < kLanes; ++i) found |= a[i];
  return found != 0;
#endif
}

// The vector that begins K cells after `a`, cut out of it and its neighbour b.
template <int K, int... I>
OG_INLINE V cut(V a, V b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (K + I)...);
#elif defined(__AVX512F__)  // g++ would take a permutation, which destroys an operand
  if constexpr (kDouble) {
    return (V)__builtin_ia32_alignq512_mask((Longs)b, (Longs)a, K, Longs{}, -1);
  } else {
    return (V)__builtin_ia32_alignd512_mask((Ints)b, (Ints)a, K, Ints{}, -1);
  }
#else
  return __builtin_shuffle(a, b, M{(K + I)...});
#endif
}

// The vector K cells of each row after `a`, cut out of it and its neighbour b.
template <int K, int... I>
OG_INLINE V cut_along(V a, V b, std::integer_sequence<int, I...> all) {
  constexpr int n = kAcross, lanes = kLanes;
  if constexpr (kFold == 1) {
    return cut<K>(a, b, all);
  } else {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (I % n + K < n ? I + K : lanes + I + K - n)...);
#elif defined(__AVX512BW__)
    if constexpr (n * sizeof(Real) == 16) {
      return (V)__builtin_ia32_palignr512_mask((Longs)b, (Longs)a, 8 * sizeof(Real) * K, Longs{},
                                               -1);
    }
#elif defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (n * sizeof(Real) == 16) {
      return (V)__builtin_ia32_palignr256((Longs)b, (Longs)a, 8 * sizeof(Real) * K);
    }
#endif
#if !defined(__clang__)
    return __builtin_shuffle(a, b, M{(I % n + K < n ? I + K : lanes + I + K - n)...});
#endif
  }
}

constexpr int whole_of(int k, int n) { return k >= 0 ? k / n : -((n - 1 - k) / n); }

// The same of the middle one of neighbours. It may lie beyond the nearest ones where vectors are
// short, so some are kept on either side.
template <int K, int Count>
OG_INLINE V shifted(const V (&at)[Count]) {
  constexpr int whole = whole_of(K, kAcross), rest = K - whole * int(kAcross);
  constexpr int first = Count / 2 + whole;
  if constexpr (rest == 0) {
    return at[first];
  } else {
    return cut_along<rest>(at[first], at[first + 1], std::make_integer_sequence<int, kLanes>{});
  }
}

// The vector K columns from the one at p. Where registers are many, and a cut of two vectors is one
// instruction, it is cut: most loads that are not of whole lines straddle two.
template <int K, class Cell>
OG_INLINE V load_beside(const Cell* p) {
  constexpr int whole = whole_of(K, kAcross), rest = K - whole * int(kAcross);
  if constexpr (kRegisters < 32 || rest == 0) {
    return load(p + K);
  } else {
    const Cell* const from = p + whole * kLanes;
    return cut_along<rest>(load(from), load(from + kLanes),
                           std::make_integer_sequence<int, kLanes>{});
  }
}

// The vector so many rows and columns from the one at p, in folded rows.
template <int Row, int Column, class Cell>
OG_INLINE V load_at(const Cell* p, int64_t stride) {
  constexpr int across = whole_of(Column, kAcross), along = Column - across * int(kAcross);
  constexpr int groups = whole_of(Row, kFold), rows = Row - groups * int(kFold);
  constexpr auto all = std::make_integer_sequence<int, kLanes>{};
  const Cell* const from = p + groups * kFold * stride + across * kLanes;
  if constexpr (along != 0) {
    constexpr int near = across * int(kAcross);
    return cut_along<along>(load_at<Row, near>(p, stride),
                            load_at<Row, near + int(kAcross)>(p, stride), all);
  } else if constexpr (rows != 0) {
    return cut<rows* int(kAcross)>(load(from), load(from + kFold * stride), all);
  } else {
    return load(from);
  }
}

// Of `count` columns from x on, those for which a cell of [first, last) reads K columns on and
// finds a column beyond them.
struct Beyond {
  int64_t begin, end;
};
template <int K>
OG_INLINE Beyond lanes_beyond(int64_t x, int64_t first, int64_t last, int64_t count) {
  if constexpr (K < 0) return {most(0, first - x), least(count, first - x - K)};
  return {most(0, last - x - K), least(count, last - x)};
}

// The vector so many rows and columns from (y, x) of a plane of folded rows, of which what lies
// beyond faces is looked up at an edge: rows beyond [low, high) of so many `rows`, and, where
// images lie `Along` rows, columns beyond [first, last). `image_y` and `image_x` find the row and
// the column.
template <int Row, int Column, bool Along, class Edge, class Cell, class ImageY, class ImageX>
OG_INLINE V load_image(Edge, const Cell* plane, int64_t stride, int64_t y, int64_t x, int64_t low,
                       int64_t high, int64_t rows, int64_t first, int64_t last,
                       const ImageY& image_y, const ImageX& image_x) {
  const Cell* const p = plane + y * stride + x * kFold;
  if constexpr (!Edge::value) {
    return load_at<Row, Column>(p, stride);
  } else {
    const bool inside = Row == 0 || (y + Row >= low && y + Row + kFold <= high);
    alignas(V) Real cells[kLanes];
    auto row_of = [&](int64_t r) {
      return inside ? y + Row + r : most(0, least(image_y(y + Row + r), rows - 1));
    };
    if (inside) {
      store(cells, load_at<Row, Column>(p, stride));
    } else {
      for (int64_t r = 0; r < kFold; ++r) {
        const int64_t row = row_of(r);
        if constexpr (Column % kAcross == 0) {
          const Cell* const from = plane + place_of(stride, row, x) + Column * kFold;
          for (int64_t a = 0; a < kAcross; ++a) cells[r * kAcross + a] = from[a];
        } else {
          for (int64_t a = 0; a < kAcross; ++a) {
            const int64_t column = most(0, x + Column + a);
            cells[r * kAcross + a] = plane[place_of(stride, row, column)];
          }
        }
      }
    }
    if constexpr (Along && Column != 0) {
      const Beyond beyond = lanes_beyond<Column>(x, first, last, kAcross);
      for (int64_t a = beyond.begin; a < beyond.end; ++a) {
        const int64_t column = image_x(x + Column + a);
        for (int64_t r = 0; r < kFold; ++r) {
          cells[r * kAcross + a] = plane[place_of(stride, row_of(r), column)];
        }
      }
    }
    return load(cells);
  }
}

// Vectors of a block, K cells from p. Where all loads straddle two lines, some vectors are cut out
// of aligned ones instead.
template <int Near, class Cell>
OG_INLINE void keep_near(V (&near)[Near], const Cell* p) {
  for (int n = 0; n < Near; ++n) near[n] = load(p + n * kLanes);
}
template <int K, int N, int Near, class Cell>
OG_INLINE void read(V (&v)[N], const Cell* p, const V (&near)[Near]) {
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

// The vector K columns from x in a row, of which what lies beyond [first, last) is looked up, as
// far as cells within read it: `image` finds what a row has in place of a column.
template <int K, class Cell, class Image>
OG_INLINE V load_beyond(const Cell* row, int64_t x, int64_t first, int64_t last,
                        const Image& image) {
  const V v = load(row + x + K);
  const Beyond beyond = lanes_beyond<K>(x, first, last, kLanes);
  if (beyond.begin >= beyond.end) return v;
  alignas(V) Real cells[kLanes];
  store(cells, v);
  for (int64_t l = beyond.begin; l < beyond.end; ++l) cells[l] = image(row, x + K + l);
  return load(cells);
}

// Lanes of folded rows y, y + 1, ... that lie in [first, last).
template <int... I>
OG_INLINE M row_lanes(std::integer_sequence<int, I...>) {
  return M{(I / int(kAcross))...};
}
OG_INLINE M rows_within(int64_t y, int64_t first, int64_t last) {
  const M lane = row_lanes(std::make_integer_sequence<int, kLanes>{});
  return (lane >= static_cast<Integer>(most(first - y, 0))) &
         (lane < static_cast<Integer>(most(least(last - y, kFold), 0)));
}

// What a vector has of a profile along rows, from its first column on, and of one along columns,
// from its first row on.
template <int... I>
OG_INLINE V repeated(V a, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, a, (I % int(kAcross))...);
#else
  return __builtin_shuffle(a, M{(I % int(kAcross))...});
#endif
}
OG_INLINE V along_row(const Real* g) {
  if constexpr (kFold == 1) return load(g);
  return repeated(load(g), std::make_integer_sequence<int, kLanes>{});
}
OG_INLINE V along_column(const Real* g) {
  V v = all(*g);
  for (int64_t l = kAcross; l < kLanes; ++l) v[l] = g[l / kAcross];
  return v;
}

// Columns x, x + 1, ... of a vector that lie in [first, last).
template <int... I>
OG_INLINE M lanes(std::integer_sequence<int, I...>) {
  return M{(I % int(kAcross))...};
}
OG_INLINE M within(int64_t x, int64_t first, int64_t last) {
  const M lane = lanes(std::make_integer_sequence<int, kLanes>{});
  auto bound = [&](int64_t at) {
    return static_cast<Integer>(at < x ? 0 : at > x + kLanes ? kLanes : at - x);
  };
  return (lane >= bound(first)) & (lane < bound(last));
}

}  // namespace
