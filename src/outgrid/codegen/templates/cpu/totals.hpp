// Numbers that cells are reduced to, exactly, so that no order of adding can be seen in them.
#pragma once

#include <cstring>

#include "cpu/vector.hpp"

namespace {

constexpr int64_t kLine = 64 / sizeof(Real);  // columns whose sum has a fixed order, in 2-D
// A total is so many digits, then counts of inf, -inf and NaN. Of an extreme value only the first
// digit is used, as a key that is ordered like the numbers.
constexpr int kDigits = 68, kCells = kDigits + 3;
constexpr int kLowest = 1126;  // the lowest digit counts 2^-kLowest

typedef double Wide __attribute__((vector_size(8 * kLanes), may_alias));

struct Total {
  int64_t digit[kDigits] = {}, beyond[3] = {};
  alignas(128) double part[16] = {};
  V top = all(-Real(__builtin_huge_val()));
  M broken = M{};

  inline void sum(V v, int64_t x) { *(Wide*)(part + (x & 15)) += __builtin_convertvector(v, Wide); }
  inline void most_of(V v) {
    broken |= (M)(v != v);
    top = v > top ? v : top;
  }
  // Ends a run of columns: its sum is one more summand.
  void close() {
    for (int w = 8; w > 0; w /= 2) {
      for (int j = 0; j < w; ++j) part[j] += part[j + w];
    }
    add(part[0]);
    for (double& each : part) each = 0;
  }
  void add(double a) {
    if (a == 0) return;
    if (!(__builtin_fabs(a) < __builtin_huge_val())) {
      ++beyond[a != a ? 2 : a < 0];
      return;
    }
    // |a| = size * 2^(exponent - 1075), by the bits of a; digit 0 counts 2^-kLowest: below all.
    const int64_t bits = bits_of_double(a), raw = bits >> 52 & 0x7ff;
    const int64_t fraction = bits & ((int64_t{1} << 52) - 1);
    const int64_t size = raw ? fraction | int64_t{1} << 52 : fraction, exponent = raw ? raw : 1;
    const int64_t whole = a < 0 ? -size : size, at = exponent - 1075 + kLowest;
    const __int128 shifted = static_cast<__int128>(whole) << (at % 32);
    digit[at / 32] += static_cast<int64_t>(shifted & 0xffffffff);
    digit[at / 32 + 1] += static_cast<int64_t>((shifted >> 32) & 0xffffffff);
    digit[at / 32 + 2] += static_cast<int64_t>(shifted >> 64);
  }
  void give_sum(int64_t* to) {
    for (int n = 0; n < kDigits; ++n) {
      if (n + 1 < kDigits) {
        digit[n + 1] += digit[n] >> 32;
        digit[n] &= 0xffffffff;
      }
      if (digit[n] != 0) __atomic_fetch_add(to + n, digit[n], __ATOMIC_RELAXED);
    }
    for (int n = 0; n < 3; ++n) {
      if (beyond[n] != 0) __atomic_fetch_add(to + kDigits + n, beyond[n], __ATOMIC_RELAXED);
    }
  }
  void give_most(int64_t* to) {
    if (any(broken)) __atomic_fetch_add(to + kDigits + 2, int64_t{1}, __ATOMIC_RELAXED);
    double most = -__builtin_huge_val();
    for (int64_t l = 0; l < kLanes; ++l) most = double(top[l]) > most ? double(top[l]) : most;
    int64_t key;
    std::memcpy(&key, &most, sizeof key);
    key ^= (key >> 63) & INT64_MAX;
    int64_t now = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (key > now &&
           !__atomic_compare_exchange_n(to, &now, key, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
};

}  // namespace
