// From random words to values. Each struct turns one Words into COUNT values of SIZE bytes.
#pragma once
#include "words.h"

// The inverse normal distribution as 32 straight pieces, two an octave of u: intercepts, then slopes.
struct Table {
  float intercept[32], slope[32];
};

INLINE Floats looked_up(const float* table, Words piece) {
#if defined(__AVX512F__)
  return (Floats)_mm512_permutex2var_ps(_mm512_loadu_ps(table), (__m512i)piece, _mm512_loadu_ps(table + 16));
#else
  Floats found;
  for (int i = 0; i < 16; i++) found[i] = table[piece[i] & 31];
  return found;
#endif
}

// Normal values within bounds, in float32. Of a word, the first bit is the sign and 31 bits are u.
struct Normal {
  const Table& table;
  float mean, deviation, low, high;

  INLINE Floats operator()(Words w) const {
    // At least 2^15, so that there are 16 octaves; less than 2^31 after rounding to 24 bits.
    Ints m = (Ints)((w & 0x7fffffffu) | 0x8000u);
    m = m < 0x7fffff80 ? m : Ints{} + 0x7fffff80;
    const Floats u = __builtin_convertvector(m, Floats);
    const Words piece = as<Words>(u) >> 22;  // its last five bits: the octave, and which half of it
    const Floats size = u * looked_up(table.slope, piece & 31) + looked_up(table.intercept, piece & 31);
    const Floats x = as<Floats>(as<Words>(size) ^ (w & 0x80000000u)) * deviation + mean;
    const Floats least = Floats{} + low, most = Floats{} + high;
    const Floats above = x < least ? least : x;
    return above > most ? most : above;
  }
};

INLINE Words halves_swapped(Words w) { return w << 16 | w >> 16; }

struct Float32 {
  static constexpr int COUNT = 16, SIZE = 4;
  Normal normal;

  INLINE void operator()(Words w, uint8_t* out) const { store(out, normal(w)); }
};

// 63 bits are u. The same pieces, scaled.
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

// Two values a word: the second one sees the word's halves the other way round, so that what decides it is the
// first one's last bits.
struct Bfloat16 {
  static constexpr int COUNT = 32, SIZE = 2;
  Normal normal;

  INLINE void operator()(Words w, uint8_t* out) const {
    store(out, rounded(normal(w)));
    store(out + 32, rounded(normal(halves_swapped(w))));
  }

  static INLINE Halves rounded(Floats x) {
    const Words bits = as<Words>(x);
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, Halves);
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
#else
  static INLINE Halves rounded(Floats x) {
    const Words bits = as<Words>(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const Words tiny = as<Words>(as<Floats>(size) + 0.5f) - 0x3f000000;  // the sum rounds where a half would
    const Words usual = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const Words small = size < (113u << 23) ? tiny : usual;
    return __builtin_convertvector((size < 0x47800000u ? small : Words{} + 0x7c00) | sign, Halves);
  }
#endif
};

// first + [0, range), for ranges up to 2^16: the product of a word and the range, without its last 32 bits. Signs do
// not matter: everything is modulo the type's width.
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

// The same of 64 bits, for greater ranges; 0 stands for 2^64.
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

// One of two values, given by their bits: the first with a probability of `share` 256ths.
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
