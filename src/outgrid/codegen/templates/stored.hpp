// Cells as they are kept, where that is not in the type computed with: numbers of 16 bits, and sums
// with what sources add. Asks for OG_INLINE, OG_MEMBER, float_bits and float_of.
//
// Halves are made of a float by whole-number operations, in vectors as in single numbers, so that
// they round alike on every processor and device: to nearest, the even one of two.
#pragma once

namespace {
namespace halves {

// IEEE's binary16: 5 bits of its exponent, 10 of its fraction. Words are the bits of floats, of
// vectors or single ones.
struct Binary {
  // All but the sign, which is bit 31. 2^112 brings the exponent of a half to that of a float,
  // below the normal range too.
  template <class Words, class Of>
  static OG_MEMBER Words widened(Words half, const Of& of) {
    const Words size = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
    const Words number = of.bits(of.floats(size) * 0x1p112f);
    return (size < (0x7c00 << 13) ? number : (size | 0x7f800000)) | sign;
  }

  // The nearest half. A sum with 0.5 has room for what a half has below its normal range, and no
  // more.
  template <class Words, class Of>
  static OG_MEMBER Words narrowed(Words bits, const Of& of) {
    const Words size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    const Words normal = (size + ((size >> 13) & 1) + (0xfff - (112 << 23))) >> 13;
    const Words tiny = of.bits(of.floats(size) + 0.5f) - 0x3f000000;
    const Words beyond = size - size + 0x7c00, none = size - size + 0x7e00;
    const Words finite = size < 0x38800000 ? tiny : normal;
    const Words found = size < 0x477ff000 ? finite : size > 0x7f800000 ? none : beyond;
    return found | sign;
  }
};

// The upper half of a float, bfloat16: 8 bits of its exponent, 7 of its fraction.
struct Upper {
  template <class Words, class Of>
  static OG_MEMBER Words widened(Words half, const Of&) {
    return half << 16;
  }

  // What is rounded off is carried into the upper half, which is a half beyond the range as well.
  template <class Words, class Of>
  static OG_MEMBER Words narrowed(Words bits, const Of&) {
    const Words size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000, high = size >> 16;
    const Words nearest = high + (((size & 0xffff) + 0x7fff + (high & 1)) >> 16);
    const Words none = size - size + 0x7fc0;
    return (size > 0x7f800000 ? none : nearest) | sign;
  }
};

struct Single {
  static OG_MEMBER int bits(float a) { return float_bits(a); }
  static OG_MEMBER float floats(int a) { return float_of(a); }
};

}  // namespace halves

// A number of 16 bits, by what they mean.
template <class Meaning>
struct Short {
  uint16_t bits;
  Short() = default;
  OG_MEMBER Short(float a) : bits(uint16_t(Meaning::narrowed(float_bits(a), halves::Single()))) {}
  OG_MEMBER operator float() const {
    return float_of(Meaning::widened(int(bits), halves::Single()));
  }
};
using Half = Short<halves::Binary>;
using UpperHalf = Short<halves::Upper>;

// Types of cells by number.
template <class Cell>
constexpr int kKind = 0;
template <>
constexpr int kKind<float> = 1;
template <>
constexpr int kKind<double> = 2;
template <>
constexpr int kKind<Half> = 3;
template <>
constexpr int kKind<UpperHalf> = 4;
template <>
constexpr int kKind<int8_t> = 5;
template <>
constexpr int kKind<uint8_t> = 6;
template <>
constexpr int kKind<int16_t> = 7;
template <>
constexpr int kKind<uint16_t> = 8;
template <>
constexpr int kKind<int32_t> = 9;

template <class Cell>
constexpr bool kIsWhole = kKind<Cell> >= 5;

// What a cell becomes when a source adds to it. Sums of whole numbers stay in their range.
template <class Cell>
OG_INLINE Cell added(Cell a, double amount) {
  if constexpr (kIsWhole<Cell>) {
    constexpr bool with_sign = Cell(-1) < Cell(0);
    constexpr int bits = 8 * sizeof(Cell) - with_sign;
    constexpr double most = double((int64_t(1) << bits) - 1), least = with_sign ? -most - 1 : 0;
    const double sum = double(a) + amount;
    return Cell(sum < least ? least : sum > most ? most : sum);
  } else {
    return Cell(a + Cell(amount));
  }
}

}  // namespace
