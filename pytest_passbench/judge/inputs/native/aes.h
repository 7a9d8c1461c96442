// AES-128 in counter mode (FIPS 197, NIST SP 800-38A). Block number n of a stream is the encryption of n as 8 bytes
// and the nonce as 8 bytes, both little-endian. There are two implementations of the same stream: AES-NI encrypts one
// block in an instruction, VAES four.
#pragma once
#include "words.h"

#if defined(__AES__)

struct AesKey {
  __m128i round[11];

  explicit AesKey(const uint8_t* key) {
    round[0] = _mm_loadu_si128((const __m128i*)key);
    next<1, 0x01>(), next<2, 0x02>(), next<3, 0x04>(), next<4, 0x08>(), next<5, 0x10>();
    next<6, 0x20>(), next<7, 0x40>(), next<8, 0x80>(), next<9, 0x1b>(), next<10, 0x36>();
  }

 private:
  template <int NUMBER, int CONSTANT>
  void next() {
    __m128i key = round[NUMBER - 1];
    const __m128i assist = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, CONSTANT), 0xff);
    for (int i = 0; i < 3; i++) key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    round[NUMBER] = _mm_xor_si128(key, assist);
  }
};

// Each Words is four blocks, as four vectors of 128 bits.
class AesNi {
 public:
  using Key = AesKey;
  static constexpr int VECTORS = 2;

  AesNi(const Key& key, uint64_t nonce, uint64_t first)
      : key_(key), counter_(_mm_set_epi64x((long long)nonce, (long long)first)) {}

  INLINE void next(Words* out) {
    __m128i blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = _mm_add_epi64(counter_, _mm_set_epi64x(0, i));
    counter_ = _mm_add_epi64(counter_, _mm_set_epi64x(0, 8));
    encrypt(key_, blocks);
    std::memcpy(out, blocks, sizeof(blocks));
  }

  static INLINE void encrypt(const Key& key, __m128i* blocks) {
    for (int i = 0; i < 8; i++) blocks[i] = _mm_xor_si128(blocks[i], key.round[0]);
    for (int r = 1; r < 10; r++)
      for (int i = 0; i < 8; i++) blocks[i] = _mm_aesenc_si128(blocks[i], key.round[r]);
    for (int i = 0; i < 8; i++) blocks[i] = _mm_aesenclast_si128(blocks[i], key.round[10]);
  }

 private:
  const Key key_;
  __m128i counter_;
};

#if defined(__VAES__) && defined(__AVX512F__)
#define HAS_VAES 1

struct WideAesKey {
  __m512i round[11];

  explicit WideAesKey(const uint8_t* key) {
    const AesKey narrow(key);
    for (int r = 0; r < 11; r++) round[r] = _mm512_broadcast_i32x4(narrow.round[r]);
  }
};

class Vaes {
 public:
  using Key = WideAesKey;
  static constexpr int VECTORS = 8;

  Vaes(const Key& key, uint64_t nonce, uint64_t first) : key_(key) {
    const long long n = (long long)nonce, f = (long long)first;
    counter_ = _mm512_set_epi64(n, f + 3, n, f + 2, n, f + 1, n, f);
  }

  INLINE void next(Words* out) {
    __m512i blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = later(4 * i);
    counter_ = later(32);
    encrypt(key_, blocks);
    for (int i = 0; i < 8; i++) out[i] = (Words)blocks[i];
  }

  static INLINE void encrypt(const Key& key, __m512i* blocks) {
    for (int i = 0; i < 8; i++) blocks[i] = _mm512_xor_si512(blocks[i], key.round[0]);
    for (int r = 1; r < 10; r++)
      for (int i = 0; i < 8; i++) blocks[i] = _mm512_aesenc_epi128(blocks[i], key.round[r]);
    for (int i = 0; i < 8; i++) blocks[i] = _mm512_aesenclast_epi128(blocks[i], key.round[10]);
  }

 private:
  INLINE __m512i later(long long blocks) const {
    return _mm512_add_epi64(counter_, _mm512_set_epi64(0, blocks, 0, blocks, 0, blocks, 0, blocks));
  }

  const Key key_;
  __m512i counter_;
};
#endif
#endif
