// Random numbers by counter: Philox4x32-10 (J. K. Salmon and others, SC11, 2011,
// doi:10.1145/2063384.2063405) of the indices of a cell and the step, with the seed as its key.
//
// Asks for V and OG_INLINE, and for Counts, words of 64 bits for each lane, with whole_of, which
// makes them of whole numbers, and fraction_of, which makes numbers in [0, 1) of two of them.
#pragma once

namespace {

// One turn: each word is at most 32 bits, and so is a half of a product of two.
OG_INLINE void philox_turn(Counts& a, Counts& b, Counts& c, Counts& d, Counts k, Counts j) {
  const Counts first = a * uint64_t(0xD2511F53), second = c * uint64_t(0xCD9E8D57);
  const Counts word = a - a + uint64_t(0xFFFFFFFF);
  a = (second >> 32) ^ b ^ (k & word), b = second & word;
  c = (first >> 32) ^ d ^ (j & word), d = first & word;
}

// Of the cell (z, y, x) in a step; the seed is low + 2^24 high.
OG_INLINE V random_of(V low, V high, V step, V z, V y, V x) {
  const Counts seed = whole_of(low) + (whole_of(high) << 24);
  Counts a = whole_of(x), b = whole_of(y), c = whole_of(z), d = whole_of(step);
  Counts k = seed & uint64_t(0xFFFFFFFF), j = seed >> 32;
  for (int turn = 0; turn < 10; ++turn) {
    philox_turn(a, b, c, d, k, j);
    k += uint64_t(0x9E3779B9), j += uint64_t(0xBB67AE85);
  }
  return fraction_of(a, b);
}

}  // namespace
