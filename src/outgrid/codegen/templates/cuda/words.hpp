// What is written alike for processors and devices, as the compiler of a device has it.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define OG_INLINE static __device__ __forceinline__
#define OG_MEMBER __device__ __forceinline__
#define OG_CALL static inline __device__ __noinline__
// Memory that the threads of a block share, as much as the launch asks for.
#define OG_SHARED(Type, name)                \
  extern __shared__ double outgrid_shared[]; \
  Type* const name = (Type*)outgrid_shared

OG_INLINE int float_bits(float a) { return __float_as_int(a); }
OG_INLINE float float_of(int a) { return __int_as_float(a); }
