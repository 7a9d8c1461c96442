// Turns random words into values. Each struct makes COUNT values of SIZE bytes from one Words.
#pragma once
#include "words.h"

// The inverse normal distribution as 32 straight pieces, two in each octave of u: intercepts, then slopes.
struct Table {
  float intercept[32], slope[32];
};

// Normal values within bounds, in float32. A word's first bit is the sign, the other 31 bits are u. u is made at
// least 2^15, so that there are 16 octaves, and less than 2^31 after rounding to 24 bits.
struct Normal {
  const Table& table;
  float mean, deviation, low, high;

#if defined(__AVX512F__)
  INLINE Floats operator()(Words w) const {
    Ints m = (Ints)((w & 0x7fffffffu) | 0x8000u);
    m = (Ints)_mm512_min_epi32((__m512i)m, _mm512_set1_epi32(0x7fffff80));
    const Floats u = __builtin_convertvector(m, Floats);
    const Words piece = as<Words>(u) >> 22;  // its last five bits are the octave, and the half of the octave
    const Floats size = u * looked_up(table.slope, piece) + looked_up(table.intercept, piece);
    const Floats x = as<Floats>(as<Words>(size) ^ (w & 0x80000000u)) * deviation + mean;
    return (Floats)_mm512_min_ps(_mm512_max_ps((__m512)x, _mm512_set1_ps(low)), _mm512_set1_ps(high));
  }

  static INLINE __m512 looked_up(const float* table, Words piece) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), (__m512i)piece, _mm512_loadu_ps(table + 16));
  }
#else
  INLINE Floats operator()(Words words) const {  // value by value, which compilers optimise better than wide vectors
    uint32_t w[16];
    float x[16];
    std::memcpy(w, &words, sizeof(w));
    for (int i = 0; i < 16; i++) {
      int32_t m = (int32_t)((w[i] & 0x7fffffffu) | 0x8000u);
      m = m < 0x7fffff80 ? m : 0x7fffff80;
      const float u = (float)m;
      const uint32_t piece = as<uint32_t>(u) >> 22 & 31;
      const float size = u * table.slope[piece] + table.intercept[piece];
      const float value = as<float>(as<uint32_t>(size) ^ (w[i] & 0x80000000u)) * deviation + mean;
      const float above = value < low ? low : value;
      x[i] = above > high ? high : above;
    }
    Floats found;
    std::memcpy(&found, x, sizeof(x));
    return found;
  }
#endif
};

INLINE Words halves_swapped(Words w) { return w << 16 | w >> 16; }

struct Float32 {
  static constexpr int COUNT = 16, SIZE = 4;
  Normal normal;

  INLINE void operator()(Words w, uint8_t* out) const { store(out, normal(w)); }
};

// Normal values in float64, from the same pieces, scaled. u has 63 bits.
struct Float64 {
  static constexpr int COUNT = 8, SIZE = 8;
  const Table& table;
  double mean, deviation, low, high;

  INLINE void operator()(Words words, uint8_t* out) const {
    const Longs w = as<Longs>(words);
    double x[8];
    for (int i = 0; i < 8; i++) {
      uint64_t m = (w[i] & 0x7fffffffffffffffu) | 0x800000000000u;
      if (m > 0x7ffffffffffffc00u) m = 0x7ffffffffffffc00u;
      const double u = (double)(int64_t)m;
      const int piece = (as<uint64_t>(u) >> 51) & 31;
      const double size = u * 0x1p-32 * (double)table.slope[piece] + (double)table.intercept[piece];
      const double value = (w[i] >> 63 ? -size : size) * deviation + mean;
      x[i] = value < low ? low : value > high ? high : value;
    }
    std::memcpy(out, x, sizeof(x));
  }
};

using Halves = VECTOR(uint16_t, 16);

INLINE Halves narrowed(Words words) {
#if defined(__AVX512F__)
  return __builtin_convertvector(words, Halves);
#else
  uint32_t wide[16];
  uint16_t narrow[16];
  std::memcpy(wide, &words, sizeof(wide));
  for (int i = 0; i < 16; i++) narrow[i] = (uint16_t)wide[i];
  Halves found;
  std::memcpy(&found, narrow, sizeof(narrow));
  return found;
#endif
}

// Each word gives two values. The second one takes the word with its halves swapped, so the bits that decide it are
// the last bits of the first one.
struct Bfloat16 {
  static constexpr int COUNT = 32, SIZE = 2;
  Normal normal;

  INLINE void operator()(Words w, uint8_t* out) const {
    store(out, rounded(normal(w)));
    store(out + 32, rounded(normal(halves_swapped(w))));
  }

  static INLINE Halves rounded(Floats x) {
    const Words bits = as<Words>(x);
    return narrowed((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct Float16 {
  static constexpr int COUNT = 32, SIZE = 2;
  Normal normal;

  INLINE void operator()(Words w, uint8_t* out) const {
    store(out, rounded(normal(w)));
    store(out + 32, rounded(normal(halves_swapped(w))));
  }

#if defined(__AVX512F__)
  static INLINE Halves rounded(Floats x) { return (Halves)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__F16C__)
  static INLINE Halves rounded(Floats x) {
    __m256 part[2];
    std::memcpy(part, &x, sizeof(part));
    const __m128i half[2] = {_mm256_cvtps_ph(part[0], _MM_FROUND_TO_NEAREST_INT),
                             _mm256_cvtps_ph(part[1], _MM_FROUND_TO_NEAREST_INT)};
    Halves found;
    std::memcpy(&found, half, sizeof(half));
    return found;
  }
#else
  static INLINE Halves rounded(Floats x) {
    uint32_t bits[16];
    uint16_t halves[16];
    std::memcpy(bits, &x, sizeof(bits));
    for (int i = 0; i < 16; i++) {
      const uint32_t size = bits[i] & 0x7fffffff, sign = bits[i] >> 16 & 0x8000;
      const uint32_t tiny = as<uint32_t>(as<float>(size) + 0.5f) - 0x3f000000;  // the sum rounds as a denormal half
      const uint32_t usual = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
      const uint32_t small = size < (113u << 23) ? tiny : usual;
      halves[i] = (uint16_t)((size < 0x47800000u ? small : 0x7c00) | sign);
    }
    Halves found;
    std::memcpy(&found, halves, sizeof(halves));
    return found;
  }
#endif
};

// Integers first + [0, range), for ranges up to 2^16: the product of a word and the range, without its last 32 bits.
// Signs do not matter, since all sums are modulo the type's width.
template <class T>
struct Integer {
  static constexpr int COUNT = 16, SIZE = sizeof(T);
  uint64_t first;
  uint32_t range;

  INLINE void operator()(Words w, uint8_t* out) const {
    const Words picked = ((w >> 16) * range + ((w & 0xffff) * range >> 16)) >> 16;
    uint32_t each[16];
    T values[16];
    std::memcpy(each, &picked, sizeof(each));
    for (int i = 0; i < 16; i++) values[i] = (T)(each[i] + first);
    std::memcpy(out, values, sizeof(values));
  }
};

// The same with 64 bits, for greater ranges. A range of 0 stands for 2^64.
template <class T>
struct WideInteger {
  static constexpr int COUNT = 8, SIZE = sizeof(T);
  uint64_t first, range;

  INLINE void operator()(Words words, uint8_t* out) const {
    const Longs w = as<Longs>(words);
    T values[8];
    for (int i = 0; i < 8; i++) {
      const uint64_t picked = range ? (uint64_t)((unsigned __int128)w[i] * range >> 64) : w[i];
      values[i] = (T)(first + picked);
    }
    std::memcpy(out, values, sizeof(values));
  }
};

// A choice of two values, given by their bits: the first with a probability of `share` / 256.
template <class T>
struct Choice {
  static constexpr int COUNT = 64, SIZE = sizeof(T);
  T chosen, other;
  uint8_t share;

  INLINE void operator()(Words w, uint8_t* out) const {
    uint8_t bytes[64];
    T values[64];
    std::memcpy(bytes, &w, sizeof(bytes));
    for (int i = 0; i < 64; i++) values[i] = bytes[i] < share ? chosen : other;
    std::memcpy(out, values, sizeof(values));
  }
};
