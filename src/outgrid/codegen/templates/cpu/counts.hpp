// Whole numbers of 64 bits, one for each lane of a vector.
#pragma once

#include "cpu/vector.hpp"

namespace {

typedef uint64_t Counts __attribute__((vector_size(8 * kLanes)));
typedef int32_t Counted __attribute__((vector_size(4 * kLanes)));

// Whole numbers below 2^52, or in floats below 2^31, as words: a sum has them in its last bits.
OG_INLINE Counts whole_of(V a) {
  if constexpr (kDouble) {
    constexpr Integer fraction = (Integer(1) << (kDouble ? 52 : 23)) - 1;
    return __builtin_convertvector((M)(a + kWhole) & fraction, Counts);
  } else {
    return __builtin_convertvector(__builtin_convertvector(a, Counted), Counts);
  }
}

// The first bits of two words as a number in [0, 1), exactly.
OG_INLINE V fraction_of(Counts first, Counts second) {
  if constexpr (kDouble) {
    const M one = bits_of(all(kWhole));
    const V high = real_of(__builtin_convertvector(first, M) | one) - kWhole;
    const V low = real_of(__builtin_convertvector(second >> 11, M) | one) - kWhole;
    return (high * Real(0x1p+21) + low) * Real(0x1p-53);
  } else {
    const Counted whole = __builtin_convertvector(first >> 8, Counted);
    return __builtin_convertvector(whole, V) * Real(0x1p-24);
  }
}

}  // namespace
