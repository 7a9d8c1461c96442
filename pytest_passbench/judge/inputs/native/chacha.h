// ChaCha (RFC 8439; the generator uses fewer rounds for speed), 16 blocks side by side: lane i of word w belongs to
// block number first + i. The stream gives word 0 of all 16 blocks, then word 1, and so on. The order of the words
// does not matter for random values, so nothing is transposed.
#pragma once
#include "words.h"

struct ChaChaKey {
  uint32_t word[8];

  explicit ChaChaKey(const uint8_t* key) { std::memcpy(word, key, sizeof(word)); }
};

template <int ROUNDS>
class ChaCha {
 public:
  using Key = ChaChaKey;
  static constexpr int VECTORS = 16;

  ChaCha(const Key& key, uint64_t nonce, uint64_t first)
      : ChaCha(key, (uint32_t)first, (uint32_t)(first >> 32), (uint32_t)nonce, (uint32_t)(nonce >> 32)) {}

  // The last four words of the state, as in the RFC: the number of the block, and a nonce of three words.
  ChaCha(const Key& key, uint32_t block, uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key.word[0], key.word[1],
                                key.word[2], key.word[3], key.word[4], key.word[5], key.word[6], key.word[7],
                                block, a, b, c};
    for (int i = 0; i < 16; i++) state_[i] = Words{} + start[i];
    state_[12] += Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  }

  INLINE void next(Words* x) {
    for (int i = 0; i < 16; i++) x[i] = state_[i];
    for (int r = 0; r < ROUNDS; r += 2) {
      quarter(x[0], x[4], x[8], x[12]), quarter(x[1], x[5], x[9], x[13]);
      quarter(x[2], x[6], x[10], x[14]), quarter(x[3], x[7], x[11], x[15]);
      quarter(x[0], x[5], x[10], x[15]), quarter(x[1], x[6], x[11], x[12]);
      quarter(x[2], x[7], x[8], x[13]), quarter(x[3], x[4], x[9], x[14]);
    }
    for (int i = 0; i < 16; i++) x[i] += state_[i];
    state_[12] += 16;
  }

 private:
  static INLINE Words turned(Words x, int bits) { return x << bits | x >> (32 - bits); }

  static INLINE void quarter(Words& a, Words& b, Words& c, Words& d) {
    a += b, d = turned(d ^ a, 16);
    c += d, b = turned(b ^ c, 12);
    a += b, d = turned(d ^ a, 8);
    c += d, b = turned(b ^ c, 7);
  }

  Words state_[16];
};
