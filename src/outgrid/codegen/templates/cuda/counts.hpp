// Whole numbers of 64 bits, one for each thread.
#pragma once

#include "cuda/numbers.hpp"

typedef uint64_t Counts;

OG_INLINE Counts whole_of(V a) { return Counts(a); }

// The first bits of two words as a number in [0, 1), exactly.
OG_INLINE V fraction_of(Counts first, Counts second) {
  if constexpr (kDouble) {
    return Real(int64_t(first << 21 | second >> 11)) * Real(0x1p-53);
  } else {
    return Real(int64_t(first >> 8)) * Real(0x1p-24);
  }
}
