// The inputs of a block of calls, from a key. Input i of call c of block b has a stream of its own, whose nonce is
// (b, c, i). So each of them can be made again by itself.
#include "aes.h"
#include "chacha.h"
#include "values.h"

namespace {

// The same numbers as in pytest_passbench/judge/inputs/generator.py.
enum Kind : int32_t { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INTEGER, CHOICE };
enum Cipher : int32_t { CHACHA8, AES_NI, VAES };

struct Input {
  int32_t kind, size;              // bytes of a value
  uint64_t index, offset, count;   // number of the input, its place in a call's slot (bytes), number of its values
  double mean, deviation, low, high;
  double narrower, aside;          // greatest distances of a call's scale from 1, and of its shift from 0
  uint64_t first, range;           // of integers; the bits of the two values of a choice
  uint64_t share;
};

constexpr uint64_t OF_THE_CALL = 1ull << 63;  // first block of a stream's second part, for a call's scale and shift
constexpr uint64_t MAX_NARROW_RANGE = 1 << 16;

template <class Stream, class Values>
void write(Stream stream, const Values& values, uint8_t* out, uint64_t count) {
  constexpr int WHOLE = Values::COUNT * Values::SIZE;
  Words words[Stream::VECTORS];
  while (count >= (uint64_t)Values::COUNT * Stream::VECTORS) {
    stream.next(words);
    for (int i = 0; i < Stream::VECTORS; i++, out += WHOLE) values(words[i], out);
    count -= Values::COUNT * Stream::VECTORS;
  }
  if (!count) return;
  uint8_t rest[WHOLE * Stream::VECTORS];
  stream.next(words);
  for (int i = 0; i < Stream::VECTORS; i++) values(words[i], rest + i * WHOLE);
  std::memcpy(out, rest, count * Values::SIZE);
}

template <class T, class Stream>
void write_integers(const Stream& stream, const Input& input, uint8_t* out) {
  const bool narrow = input.range && input.range <= MAX_NARROW_RANGE;
  const uint32_t range = (uint32_t)(narrow ? input.range : MAX_NARROW_RANGE);
  if (narrow || sizeof(T) < 4)
    write(stream, Integer<T>{input.first, range}, out, input.count);
  else
    write(stream, WideInteger<T>{input.first, input.range}, out, input.count);
}

template <class T, class Stream>
void write_choice(const Stream& stream, const Input& input, uint8_t* out) {
  write(stream, Choice<T>{(T)input.first, (T)input.range, (uint8_t)input.share}, out, input.count);
}

double unit(uint32_t word) { return (word >> 8) * 0x1p-24; }

template <class Stream>
void write_floats(const Stream& stream, Stream own, const Table& table, const Input& input, uint8_t* out) {
  Words words[Stream::VECTORS];
  own.next(words);
  const double mean = input.mean + input.deviation * input.aside * (2 * unit(words[0][1]) - 1);
  const double deviation = input.deviation * (1 - input.narrower * unit(words[0][0]));
  const Normal normal{table, (float)mean, (float)deviation, (float)input.low, (float)input.high};
  switch (input.kind) {
    case FLOAT32: return write(stream, Float32{normal}, out, input.count);
    case FLOAT64: return write(stream, Float64{table, mean, deviation, input.low, input.high}, out, input.count);
    case FLOAT16: return write(stream, Float16{normal}, out, input.count);
    case BFLOAT16: return write(stream, Bfloat16{normal}, out, input.count);
  }
}

template <class Stream>
void write_input(const typename Stream::Key& key, const Table& table, uint64_t nonce, const Input& input,
                 uint8_t* out) {
  const Stream stream(key, nonce, 0);
  if (input.kind == INTEGER) {
    switch (input.size) {
      case 1: return write_integers<uint8_t>(stream, input, out);
      case 2: return write_integers<uint16_t>(stream, input, out);
      case 4: return write_integers<uint32_t>(stream, input, out);
      case 8: return write_integers<uint64_t>(stream, input, out);
    }
  } else if (input.kind == CHOICE) {
    switch (input.size) {
      case 1: return write_choice<uint8_t>(stream, input, out);
      case 2: return write_choice<uint16_t>(stream, input, out);
      case 4: return write_choice<uint32_t>(stream, input, out);
      case 8: return write_choice<uint64_t>(stream, input, out);
    }
  } else {
    write_floats(stream, Stream(key, nonce, OF_THE_CALL), table, input, out);
  }
}

template <class Stream>
void write_block(const uint8_t* bytes, const Table& table, uint64_t block, const Input* inputs, int count,
                 uint8_t* out, uint64_t stride, uint64_t first, uint64_t calls) {
  const typename Stream::Key key(bytes);
  for (uint64_t call = first; call < first + calls; call++, out += stride)
    for (int i = 0; i < count; i++) {
      const uint64_t nonce = block << 32 | call << 16 | inputs[i].index;
      write_input<Stream>(key, table, nonce, inputs[i], out + inputs[i].offset);
    }
}

}  // namespace

extern "C" {

// Returns the fastest Cipher of this CPU.
int32_t passbench_best() {
#if HAS_VAES
  return VAES;
#elif defined(__AES__)
  return AES_NI;
#else
  return CHACHA8;
#endif
}

// Writes the inputs of `calls` calls from number `first` on to `out`, `stride` bytes apart. There may be up to 2^32
// blocks, 2^16 calls and 2^16 inputs, since a nonce has 64 bits.
void passbench_write(int32_t cipher, const uint8_t* key, const Table* table, uint64_t block, const Input* inputs,
                     int32_t count, uint8_t* out, uint64_t stride, uint64_t first, uint64_t calls) {
#if HAS_VAES
  if (cipher == VAES) return write_block<Vaes>(key, *table, block, inputs, count, out, stride, first, calls);
#endif
#if defined(__AES__)
  if (cipher == AES_NI) return write_block<AesNi>(key, *table, block, inputs, count, out, stride, first, calls);
#endif
  write_block<ChaCha<8>>(key, *table, block, inputs, count, out, stride, first, calls);
}

// For tests: encrypts eight blocks in place by AES-128. Both implementations must give the same.
void passbench_aes(int32_t cipher, const uint8_t* key, uint8_t* blocks) {
#if HAS_VAES
  if (cipher == VAES) {
    __m512i wide[8] = {_mm512_loadu_si512(blocks), _mm512_loadu_si512(blocks + 64)};
    Vaes::encrypt(WideAesKey(key), wide);
    std::memcpy(blocks, wide, 128);
    return;
  }
#endif
#if defined(__AES__)
  __m128i narrow[8];
  std::memcpy(narrow, blocks, 128);
  AesNi::encrypt(AesKey(key), narrow);
  std::memcpy(blocks, narrow, 128);
#endif
}

// For tests: writes sixteen blocks of ChaCha with 8 or 20 rounds. `last` is the last four words of the first block's
// state.
void passbench_chacha(int32_t rounds, const uint8_t* key, const uint32_t* last, uint8_t* out) {
  Words words[16];
  if (rounds == 20)
    ChaCha<20>(ChaChaKey(key), last[0], last[1], last[2], last[3]).next(words);
  else
    ChaCha<8>(ChaChaKey(key), last[0], last[1], last[2], last[3]).next(words);
  std::memcpy(out, words, sizeof(words));
}
}
