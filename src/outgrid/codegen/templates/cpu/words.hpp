// What is written alike for processors and devices, as the compiler of a processor has it.
#pragma once

#include <cstdint>

#define OG_CALL static inline __attribute__((noinline))
#define OG_INLINE static inline __attribute__((always_inline))
#define OG_MEMBER inline __attribute__((always_inline))

namespace {

OG_INLINE int float_bits(float a) { return __builtin_bit_cast(int, a); }
OG_INLINE float float_of(int a) { return __builtin_bit_cast(float, a); }

}  // namespace
