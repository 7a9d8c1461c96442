// Vectors of 64 bytes on any CPU. The compiler splits them into the CPU's own vectors.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define VECTOR(T, LANES) T __attribute__((vector_size(sizeof(T) * (LANES))))

using Words = VECTOR(uint32_t, 16);
using Longs = VECTOR(uint64_t, 8);
using Bytes = VECTOR(uint8_t, 64);
using Ints = VECTOR(int32_t, 16);
using Floats = VECTOR(float, 16);
using Doubles = VECTOR(double, 8);

template <class To, class From>
INLINE To as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class Vector>
INLINE void store(uint8_t* out, Vector value) {
  std::memcpy(out, &value, sizeof(value));
}
