// Helpers for C++ kernels: registers of floats, three dtypes, a few functions, and loops over elements.
//
//   #include "passbench.h"
//   template <class T> void run(const T* x, const T* y, T* out, int64_t n) {
//     pb::map(n, out, [](pb::vec a, pb::vec b) { return pb::gelu(pb::round<T>(a + b)); }, x, y);
//   }
//   extern "C" void add_gelu(pb::in x, pb::in y, pb::out out, int64_t n, pb::dtype dtype) {
//     pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, out, n); });  // t: float, pb::bf16 or pb::f16
//   }
//
// Arithmetic is in float. `round<T>` belongs where eager stores a tensor of T between two operators. Without it a
// low-precision result is nearer to the exact one, and further from eager's.
// Accuracy (tests/kernels/test_header.py, against float64): exp, expm1, log, log1p, tanh, erf and sigmoid are within
// 4 units in the last place over the whole range of float. Infinities and NaN are as in the C library.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

// PB_MASKED, PB_PACKED: reads and writes of some lanes by instructions that AddressSanitizer does not look at. It gets
// those of memcpy. The other macros are for a few instructions that have no operator. <immintrin.h> alone would double the time of a build.
#if defined(__AVX512F__)
#define PB_REGISTER(out) #out "v"
#define PB_HALF
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__has_builtin) && !defined(__SANITIZE_ADDRESS__)
#if __has_builtin(__builtin_ia32_loaddquhi256_mask)
#define PB_MASKED
#endif
#endif
#elif defined(__AVX2__) && defined(__F16C__)
#if defined(__has_builtin) && !defined(__SANITIZE_ADDRESS__)
#if __has_builtin(__builtin_ia32_packusdw256) && __has_builtin(__builtin_ia32_maskloadps256)
#define PB_PACKED
#endif
#endif
#define PB_REGISTER(out) #out "x"
#define PB_HALF
#endif
#if defined(PB_HALF) && defined(__FMA__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vfmaddps256)
#define PB_FUSED  // the compiler chooses which operand the result takes the place of
#endif
#endif

namespace pb {

#if defined(__AVX512F__)
constexpr int L = 16;  // lanes of the machine's registers; GCC splits wider comparisons into single lanes
#elif defined(__AVX2__)
constexpr int L = 8;
#else
constexpr int L = 4;
#endif
typedef float vec __attribute__((vector_size(4 * L)));
typedef int32_t ivec __attribute__((vector_size(4 * L)));
typedef int64_t lvec __attribute__((vector_size(4 * L)));
typedef uint32_t uvec __attribute__((vector_size(4 * L)));
typedef double dvec __attribute__((vector_size(4 * L)));  // half as many lanes
typedef uint16_t hvec __attribute__((vector_size(2 * L)));
typedef short svec __attribute__((vector_size(2 * L)));
typedef long long quarters __attribute__((vector_size(4 * L)));

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };
enum class dtype : int32_t { f32, bf16, f16 };  // Python passes it for a torch.dtype

// Pointers to elements of the type that `dispatch` selects. Python passes a tensor, an address or None.
struct in {
  const void* address;
  template <class T> operator const T*() const { return static_cast<const T*>(address); }
};
struct out {
  void* address;
  template <class T> operator T*() const { return static_cast<T*>(address); }
};

// Calls f with a value of the C++ type that stores `d`.
template <class F> void dispatch(dtype d, F f) {
  if (d == dtype::f32) f(float{});
  else if (d == dtype::bf16) f(bf16{});
  else f(f16{});
}

template <class To, class From> inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline vec all(float x) { return vec{} + x; }

// ---- storage types: exact to float, rounded to the nearest from float (ties to even); NaN stays NaN

inline vec widen(vec x, float) { return x; }
inline vec widen(hvec x, bf16) {
#ifdef PB_PACKED  // GCC converts in two halves
  return bits<vec>(__builtin_ia32_pmovzxwd256(bits<svec>(x)) << 16);
#else
  return bits<vec>(__builtin_convertvector(x, uvec) << 16);
#endif
}
inline vec widen(hvec x, f16) {
#ifdef PB_HALF
  vec y;
  asm("vcvtph2ps %1, %0" : PB_REGISTER(=)(y) : PB_REGISTER()(x));
  return y;
#else
  uvec u = __builtin_convertvector(x, uvec), sign = (u & 0x8000u) << 16, rest = (u & 0x7fffu) << 13;
  vec normal = bits<vec>(rest + ((rest >= 0x0f800000u ? uvec{} + 224u : uvec{} + 112u) << 23));
  vec tiny = __builtin_convertvector(u & 0x7fffu, vec) * 0x1p-24f;  // subnormal halves are multiples of 2^-24
  return bits<vec>(bits<uvec>(rest < 0x00800000u ? tiny : normal) | sign);
#endif
}

inline vec narrow(vec x, float) { return x; }
inline hvec narrow(vec x, bf16) {
#ifdef __AVX512BF16__  // this instruction turns a subnormal into zero; the code below keeps it
  hvec y;
  asm("vcvtneps2bf16 %1, %0" : "=v"(y) : "v"(x));
  return y;
#else
  uvec u = bits<uvec>(x), even = u + 0x7fffu + ((u >> 16) & 1u);
  uvec upper = (x == x ? even : u | 0x400000u) >> 16;
#ifdef PB_PACKED
  auto pairs = __builtin_ia32_packusdw256(bits<ivec>(upper), ivec{});
  auto ordered = __builtin_ia32_permdi256(bits<quarters>(pairs), 0x08);
  hvec y;
  std::memcpy(&y, &ordered, sizeof y);
  return y;
#else
  return __builtin_convertvector(upper, hvec);
#endif
#endif
}
inline hvec narrow(vec x, f16) {
#ifdef PB_HALF
  hvec y;
  asm("vcvtps2ph $0, %1, %0" : PB_REGISTER(=)(y) : PB_REGISTER()(x));
  return y;
#else
  uvec u = bits<uvec>(x), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu;
  uvec normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  uvec tiny = bits<uvec>(bits<vec>(rest) + 0.5f) - 0x3f000000u;  // the addition rounds at 2^-24
  uvec half = rest < 0x38800000u ? tiny : rest < 0x477ff000u ? normal : uvec{} + 0x7c00u;
  return __builtin_convertvector((rest > 0x7f800000u ? uvec{} + 0x7e00u : half) | sign, hvec);
#endif
}

// ---- memory

#ifdef PB_PACKED  // instead of memcpy: a call of it for some lanes takes longer than all else that is done to them
inline ivec before(int64_t count) {  // a mask of the first `count` lanes
  ivec lane;
  for (int i = 0; i < L; i++) lane[i] = i;
  return lane < int32_t(count);
}
template <class T> inline T bytes(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline hvec load_halves(const char* p, int64_t count) {
  if (count >= L) return bytes<hvec>(p);
  uint64_t whole = 0, rest = 0;
  if (count & 4) whole = bytes<uint64_t>(p), p += 8;
  if (count & 2) rest = bytes<uint32_t>(p), p += 4;
  if (count & 1) rest |= uint64_t(bytes<uint16_t>(p)) << (count & 2 ? 32 : 0);
  typedef uint64_t pair __attribute__((vector_size(16)));
  return bits<hvec>(count & 4 ? pair{whole, rest} : pair{rest, 0});
}
inline void store_halves(char* p, hvec x, int64_t count) {
  typedef uint64_t pair __attribute__((vector_size(16)));
  pair y = bits<pair>(x);
  uint64_t rest = count & 4 ? y[1] : y[0];
  if (count >= L) std::memcpy(p, &x, sizeof x);
  if (count >= L) return;
  if (count & 4) std::memcpy(p, &y, 8), p += 8;
  if (count & 2) std::memcpy(p, &rest, 4), p += 4, rest >>= 32;
  if (count & 1) std::memcpy(p, &rest, 2);
}
inline void store_floats(float* p, vec x, int64_t count) {  // a masked store takes some processors twice as long
  if (count >= L) std::memcpy(p, &x, sizeof x);
  if (count >= L) return;
  if (count & 4) std::memcpy(p, &x, 16), p += 4, x = __builtin_shuffle(x, ivec{4, 5, 6, 7, 4, 5, 6, 7});
  if (count & 2) std::memcpy(p, &x, 8), p += 2, x = __builtin_shuffle(x, ivec{2, 3, 2, 3, 6, 7, 6, 7});
  if (count & 1) std::memcpy(p, &x, 4);
}
#endif

template <class T> using packed = std::conditional_t<std::is_same_v<T, float>, vec, hvec>;

template <class T> inline vec load(const T* p) {
  packed<T> x;
  std::memcpy(&x, p, sizeof x);
  return widen(x, T{});
}
template <class T> inline vec load(const T* p, int64_t count) {  // the first `count` lanes; the others are zero
  packed<T> x{};
#ifdef PB_MASKED
  if constexpr (sizeof(T) == 4) x = __builtin_ia32_loadups512_mask(p, x, (1u << count) - 1);
  else x = bits<hvec>(__builtin_ia32_loaddquhi256_mask((const short*)p, bits<svec>(x), (1u << count) - 1));
#elif defined(PB_PACKED)
  if constexpr (sizeof(T) == 4) x = __builtin_ia32_maskloadps256((const vec*)p, before(count));
  else x = load_halves((const char*)p, count);
#else
  std::memcpy(&x, p, count * sizeof(T));
#endif
  return widen(x, T{});
}
template <class T> inline void store(T* p, vec x) {
  auto y = narrow(x, T{});
  std::memcpy(p, &y, sizeof y);
}
template <class T> inline void store(T* p, vec x, int64_t count) {
  auto y = narrow(x, T{});
#ifdef PB_MASKED
  if constexpr (sizeof(T) == 4) __builtin_ia32_storeups512_mask(p, y, (1u << count) - 1);
  else __builtin_ia32_storedquhi256_mask((short*)p, bits<svec>(y), (1u << count) - 1);
#elif defined(PB_PACKED)
  if constexpr (sizeof(T) == 4) store_floats(p, y, count);
  else store_halves((char*)p, y, count);
#else
  std::memcpy(p, &y, count * sizeof(T));
#endif
}
// Rounds x as storing it as T and loading it again does.
template <class T> inline vec round(vec x) {
  if constexpr (!std::is_same_v<T, bf16>) return widen(narrow(x, T{}), T{});
  uvec u = bits<uvec>(x);  // NaN needs no special case: a NaN that came from bf16 does not overflow
  return bits<vec>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}
template <class T> inline float round(float x) { return round<T>(all(x))[0]; }
// One element: a float for the three types, else the element itself.
template <class T> inline float get(const T* p) { return load(p, 1)[0]; }
inline float get(const float* p) { return *p; }
inline double get(const double* p) { return *p; }
inline int64_t get(const int64_t* p) { return *p; }
inline int32_t get(const int32_t* p) { return *p; }
inline bool get(const bool* p) { return *p; }
template <class T, class V> inline void put(T* p, V x) {
  if constexpr (std::is_arithmetic_v<T>) *p = T(x);
  else store(p, all(float(x)), 1);
}

// A buffer of n floats, for instance for a row between two passes over it.
struct buffer {
  float* data;
  explicit buffer(int64_t n) : data(new float[n]) {}
  buffer(const buffer&) = delete;
  ~buffer() { delete[] data; }
};

// ---- functions, lane by lane

inline vec first(int64_t count, vec x, vec rest) {  // the first `count` lanes of x, then lanes of rest
  ivec lane;
  for (int i = 0; i < L; i++) lane[i] = i;
  return lane < int32_t(count) ? x : rest;
}

inline vec min(vec a, vec b) { return a < b ? a : b; }
inline vec max(vec a, vec b) { return a > b ? a : b; }
inline vec abs(vec x) { return bits<vec>(bits<ivec>(x) & 0x7fffffff); }
inline vec copysign(vec x, vec sign) { return bits<vec>(bits<ivec>(x) | (bits<ivec>(sign) & INT32_MIN)); }  // x >= 0
inline vec sqrt(vec x) {
  for (int i = 0; i < L; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
inline vec relu(vec x) { return x < 0 ? vec{} : x; }

// Returns a * b + c, rounded once where the machine has an instruction for it, whatever the compiler may contract.
template <class V> inline V fma(V a, V b, V c) {
  [[maybe_unused]] constexpr bool single = std::is_same_v<std::remove_reference_t<decltype(a[0])>, float>;
#if defined(PB_FUSED) && defined(__AVX512F__)  // GCC would split a loop over 16 lanes
  if constexpr (single) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
  else return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
#elif defined(PB_FUSED)
  if constexpr (single) return __builtin_ia32_vfmaddps256(a, b, c);
  else return __builtin_ia32_vfmaddpd256(a, b, c);
#elif defined(PB_HALF) && defined(__FMA__)
  if constexpr (single) asm("vfmadd213ps %2, %1, %0" : PB_REGISTER(+)(a) : PB_REGISTER()(b), PB_REGISTER()(c));
  else asm("vfmadd213pd %2, %1, %0" : PB_REGISTER(+)(a) : PB_REGISTER()(b), PB_REGISTER()(c));
  return a;
#else
  return a * b + c;
#endif
}
template <class V, class C> inline V poly(V, C c) { return V{} + c; }
template <class V, class C, class... Rest> inline V poly(V x, C c, Rest... rest) {
  return fma(poly(x, rest...), x, V{} + c);
}

constexpr int32_t ONE = 0x3f800000;  // the bits of 1
// The coefficients here and below are this project's weighted minimax fits (Lawson's iteration, Chebyshev nodes).
struct Reduced { vec k, em1; ivec power; };  // x = k ln 2 + r, em1 = e^r - 1, power: k in the place of an exponent
inline Reduced reduce_exp(vec x) {
  constexpr float magic = 0x1.8p23f;  // adding it rounds to an integer, which is in the last bits of the sum
  vec shifted = fma(x, all(1.44269504f), all(magic)), k = shifted - magic;
  vec r = fma(k, all(-0x1.7f7d1cp-20f), fma(k, all(-0x1.62e4p-1f), x));  // ln 2 in two parts, the first exact times k
  vec q = poly(r, 0.5f, 0.166666657f, 0.041666463f, 0.00833357032f, 0.0013935084f, 0.000197402755f);
  return {k, fma(r * r, q, r), bits<ivec>(shifted) << 23};
}
inline vec power_of_two(vec k) {  // for k in [-126, 127]
  return bits<vec>((__builtin_convertvector(k, ivec) << 23) + ONE);
}
constexpr float LOG_LEAST = -0x1.5d589ep6f;  // the logarithm of the least normal number
// The exponential, but 0 where it is below the least normal number, as in torch's softmax.
inline vec exp_normal(vec x) {
  auto [k, em1, power] = reduce_exp(x);
  vec y = bits<vec>(bits<ivec>(em1 + 1) + power);
  y = x < LOG_LEAST ? vec{} : y;
  return x < 0x1.62e43p6f ? y : x + __builtin_inff();
}
// The same for x <= 0 or NaN, in less time.
inline vec exp_nonpositive(vec x) {
  auto [k, em1, power] = reduce_exp(x);
  vec scale = bits<vec>(power + ONE);
  return x < LOG_LEAST ? vec{} : fma(em1, scale, scale);
}
inline vec exp_anywhere(vec x) {
  auto zero = x < -104;  // such as masked scores. Results that underflow take a processor 20 times as long
  x = x > 90 ? all(90) : zero ? vec{} : x;
  auto [k, em1, power] = reduce_exp(x);
#ifdef __AVX512F__
  vec y, m = em1 + 1;
  asm("vscalefps %2, %1, %0" : "=v"(y) : "v"(m), "v"(k));
#else
  vec half = (k * 0.5f + 0x1.8p23f) - 0x1.8p23f;  // two factors: 2^k can overflow although the result does not
  vec y = (em1 + 1) * power_of_two(half) * power_of_two(k - half);
#endif
  return zero ? vec{} : y;
}
inline vec exp(vec x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  auto subnormal = (x < LOG_LEAST) & (x >= -104);
  if (__builtin_expect(!__builtin_ia32_movmskps256((vec)subnormal), 1)) return exp_normal(x);
#endif
  return exp_anywhere(x);
}
inline vec expm1_within(vec x) {  // for |x| < 87
  auto [k, em1, power] = reduce_exp(x);
  vec scale = bits<vec>(power + ONE);
  return fma(em1, scale, scale - 1);
}
inline vec expm1(vec x) { return x > 87 ? exp(x) : expm1_within(x < -20 ? all(-20) : x); }
// The logarithm of (1 + f) 2^k, for f from sqrt(1/2) - 1 to sqrt(2) - 1.
inline vec log_reduced(vec f, vec k) {
  vec s = f * f;
  vec odd = poly(s, -0.250000096f, -0.166679958f, -0.124055891f, -0.116756512f);
  vec p = fma(f, odd, poly(s, 0.333333126f, 0.200021187f, 0.142195523f, 0.11888163f, 0.0674663827f));
  return k * 0x1.62e4p-1f + (f + (s * (f * p - 0.5f) + k * 0x1.7f7d1cp-20f));
}
constexpr int32_t SQRT_HALF = 0x3f3504f3;  // the bits of sqrt(1/2)
inline vec log(vec x) {
  auto tiny = x < 0x1p-126f;
  ivec u = bits<ivec>(tiny ? x * 0x1p24f : x) - SQRT_HALF;
  vec k = __builtin_convertvector(u >> 23, vec) - (tiny ? all(24) : vec{});
  vec y = log_reduced(bits<vec>((u & 0x7fffff) + SQRT_HALF) - 1, k);
  y = x == 0 ? all(-__builtin_inff()) : x < 0 ? all(__builtin_nanf("")) : y;
  return x < __builtin_inff() ? y : x;
}
inline vec log1p_within(vec x) {  // for 0 <= x < 2^126, or NaN
  ivec u = bits<ivec>(x + 1) - SQRT_HALF;
  vec scale = bits<vec>(ONE - (u & ~0x7fffff));  // 2^-k. Where scale - 1 is rounded, the sum's k ln 2 is far larger
  return log_reduced(fma(x, scale, scale - 1), __builtin_convertvector(u >> 23, vec));
}
inline vec log1p(vec x) {
  vec w = x + 1, lost = x - (w - 1);
  return w == 1 ? x : log(w) + (w > 0 && w < __builtin_inff() ? lost / w : vec{});
}
inline vec sigmoid(vec x) { return 1 / (1 + exp_normal(-x)); }
// Correctly rounded except for rare ties, as torch's is. A larger error would show in 1 + tanh(x) in half precision.
inline dvec tanh(dvec a) {  // for a in [0, 20]
  constexpr double magic = 0x1.8p52;
  dvec shifted = a * 2.8853900817779268 + magic, k = shifted - magic;
  dvec r = a * 2 - k * 0.6931471805599453;
  dvec q = poly(r, 0.4999999999950934, 0.1666666678850824, 0.04166666706032782, 0.008333280728325062, 0.00138887954510945, 0.0001990959719690051, 2.488806213502365e-05);
  dvec scale = bits<dvec>((bits<lvec>(shifted) << 52) + 0x3ff0000000000000);
  dvec e = (r * r * q + r) * scale + (scale - 1);
  return e / (e + 2);
}
// Applies f, a function of doubles, to a register of floats.
template <class F> inline vec in_doubles(vec x, F f) {
  float lanes[L];
  store(lanes, x);
  dvec halves[2];
  for (int i = 0; i < L; i++) halves[i / (L / 2)][i % (L / 2)] = lanes[i];
  for (dvec& half : halves) half = f(half);
  for (int i = 0; i < L; i++) lanes[i] = halves[i / (L / 2)][i % (L / 2)];
  return load(lanes);
}
inline vec tanh(vec x) {
  vec y = in_doubles(min(abs(x), all(20)), [](dvec a) { return tanh(a); });
  return x == x ? copysign(y, x) : x;
}
// Returns the sine of x plus so many quarters of a turn, by Taylor's series around the nearest quarter. The parts of
// pi / 2 are so short that all but the last product are exact: in floats for |x| <= 512, in doubles for |x| <= 2^30.
inline vec sine(vec x, int32_t quarters_ahead) {
  vec shifted = x * 0.636619772f + 0x1.8p23f, k = shifted - 0x1.8p23f;
  vec r = x - k * 0x1.92p+0f - k * 0x1.fb4p-12f - k * 0x1.444p-24f - k * 0x1.68c234p-39f, s = r * r;
  vec sin = fma(r * s, poly(s, -1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880), r);
  vec cos = fma(s, poly(s, -1.0f / 2, 1.0f / 24, -1.0f / 720, 1.0f / 40320, -1.0f / 3628800), all(1));
  ivec quarter = bits<ivec>(shifted) + quarters_ahead;
  return bits<vec>(bits<ivec>((quarter & 1) != 0 ? cos : sin) ^ ((quarter & 2) << 30));
}
inline dvec sine(dvec x, int64_t quarters_ahead) {
  constexpr double magic = 0x1.8p52;
  dvec shifted = x * 0.6366197723675814 + magic, k = shifted - magic;
  dvec r = x - k * 0x1.921fb4p+0 - k * 0x1.4442dp-24 - k * 0x1.8469898cc517p-48, s = r * r;
  dvec sin = r + r * s * poly(s, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                             -1.0 / 1307674368000, 1.0 / 355687428096000);
  dvec cos = 1 + s * poly(s, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                           -1.0 / 87178291200, 1.0 / 20922789888000);
  lvec quarter = bits<lvec>(shifted) + quarters_ahead;
  return bits<dvec>(bits<lvec>((quarter & 1) != 0 ? cos : sin) ^ ((quarter & 2) << 62));
}
inline bool within(vec x, float limit) {  // false if a lane is NaN
  lvec outside = bits<lvec>(~(abs(x) <= limit));
  int64_t any = 0;
  for (int i = 0; i < L / 2; i++) any |= outside[i];
  return !any;
}
template <class F> inline vec sine_of_any(vec x, int32_t quarters_ahead, F exact) {
  if (within(x, 512)) return sine(x, quarters_ahead);
  if (within(x, 0x1p30f)) return in_doubles(x, [=](dvec a) { return sine(a, int64_t(quarters_ahead)); });
  for (int i = 0; i < L; i++) x[i] = float(exact(x[i]));
  return x;
}
inline vec sin(vec x) { return sine_of_any(x, 0, [](double a) { return __builtin_sin(a); }); }
inline vec cos(vec x) { return sine_of_any(x, 1, [](double a) { return __builtin_cos(a); }); }
inline vec erf(vec x) {  // erf(a) = 1 - e^-ah(a), h fitted on [0, 4]
  vec a = min(abs(x), all(4));
  vec h = poly(a, 1.12837917f, 0.636619381f, 0.102777838f, -0.0191530894f, -0.00016035277f, 0.00166698698f,
               -0.000632815899f, 0.00011763567f, -9.25566461e-06f);
  vec y = copysign(-expm1_within(-a * h), x);
  return x == x ? y : x;
}

// Activations as torch defines them.
inline vec silu(vec x) { return x / (1 + exp_normal(-x)); }
inline vec gelu(vec x) {  // erf by formula 7.1.26 of Abramowitz and Stegun (1964), to within 1.5e-7, as eager has it here
  vec z = x * 0.707106781f, t = 1 / fma(abs(z), all(0.3275911f), all(1));
  vec p = poly(t, 0.254829592f, -0.284496736f, 1.421413741f, -1.453152027f, 1.061405429f);
  vec y = fma(-(exp_nonpositive(-(z * z)) * t), p, all(1));
  return 0.5f * x * (1 + bits<vec>(bits<ivec>(y) ^ (bits<ivec>(z) & INT32_MIN)));
}
inline vec gelu_tanh(vec x) {
  vec inner = 0.797884561f * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1 + tanh(inner));
}
inline vec softplus(vec x) { return x > 20 ? x : log1p_within(exp(min(all(20), x))); }

// ---- loops over n elements

// Sets y[i] = f(x[i]...). The pointers may be of different types.
template <class Y, class F, class... X> inline void map(int64_t n, Y* y, F f, const X*... x) {
  int64_t i = 0;
  for (; i + L <= n; i += L) store(y + i, f(load(x + i)...));
  if (i < n) store(y + i, f(load(x + i, n - i)...), n - i);
}

template <int N> struct Floats {
  typedef float type __attribute__((vector_size(4 * N)));
};
// Returns all lanes of x joined, in every lane. Without single floats, which GCC compares by jumps.
template <int Apart = L / 2, class Join> inline vec fold(vec x, Join join) {
  ivec other;
  for (int i = 0; i < L; i++) other[i] = i ^ Apart;
  x = join(x, __builtin_shuffle(x, other));
  if constexpr (Apart > 1) return fold<Apart / 2>(x, join);
  return x;
}
inline float total(vec x) {
  return fold(x, [](vec a, vec b) { return a + b; })[0];
}
inline float greatest(vec x) { return fold(x, max)[0]; }

// Joins f(x[i]...) by `join` into one vector, beginning with `start`. Lanes after the end count as `start`.
// Each value is also stored in y (or `nowhere`). It is joined before the store rounds it.
struct nowhere {};
inline nowhere operator+(nowhere y, int64_t) { return y; }
template <class... Count> inline void store(nowhere, vec, Count...) {}
template <class Y, class Join, class F, class... X>
inline vec reduce(int64_t n, Y y, vec start, Join join, F f, const X*... x) {
  auto keep = [&](int64_t i) {
    vec value = f(load(x + i)...);
    store(y + i, value);
    return value;
  };
  vec even = start, odd = start;  // two chains hide half of the latency
  int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    even = join(even, keep(i));
    odd = join(odd, keep(i + L));
  }
  for (; i + L <= n; i += L) even = join(even, keep(i));
  if (i < n) {
    vec last = f(load(x + i, n - i)...);
    store(y + i, last, n - i);
    odd = join(odd, first(n - i, last, start));
  }
  return join(even, odd);
}
// Return the sum or the greatest of f(x[i]...). The forms with y also set y[i] = f(x[i]...), in the same pass.
template <class Y, class F, class... X> inline float map_sum(int64_t n, Y y, F f, const X*... x) {
  return total(reduce(n, y, vec{}, [](vec a, vec b) { return a + b; }, f, x...));
}
template <class Y, class F, class... X> inline float map_greatest(int64_t n, Y y, F f, const X*... x) {
  return greatest(reduce(n, y, all(-__builtin_inff()), [](vec a, vec b) { return max(a, b); }, f, x...));
}
template <class F, class... X> inline float sum(int64_t n, F f, const X*... x) { return map_sum(n, nowhere{}, f, x...); }
template <class F, class... X> inline float greatest(int64_t n, F f, const X*... x) {
  return map_greatest(n, nowhere{}, f, x...);
}

// Returns the sum of x (n >= 8) with the bits of torch.sum on a contiguous float32 row, by adding in the same order:
// 4 chains of 8 lanes, cascaded every 16 steps. Norms that are rounded twice in half precision need the exact bits.
inline float sum_as_torch(int64_t n, const float* x) {
  constexpr int K = 32 / L;
  vec sums[K] = {};
  auto step = [&](int64_t i) { for (int c = 0; c < K; c++) sums[c] += load(x + i * 32 + c * L); };
  int64_t size = n / 32, i = 0;
  if (size < 16) {
    for (; i < size; i++) step(i);
  } else {
    vec levels[4][K] = {};  // of which the first one is in `sums`
    int64_t power = (64 - __builtin_clzll(size - 1)) / 4, level = power > 4 ? power : 4;
    while (i + (int64_t(1) << level) <= size) {
      for (int64_t end = i + (int64_t(1) << level); i < end; i++) step(i);
      for (int j = 1; j < 4; j++) {
        for (int c = 0; c < K; c++) {
          vec& from = j > 1 ? levels[j - 1][c] : sums[c];
          levels[j][c] += from;
          from = vec{};
        }
        if (i & (((int64_t(1) << level) - 1) << (j * level))) break;
      }
    }
    for (; i < size; i++) step(i);
    for (int j = 1; j < 4; j++) for (int c = 0; c < K; c++) sums[c] += levels[j][c];
  }
  typename Floats<8>::type chains[4], eight;
  std::memcpy(chains, sums, sizeof sums);
  for (i = size * 32; i + 8 <= n; i += 8) {
    std::memcpy(&eight, x + i, sizeof eight);
    chains[0] += eight;
  }
  eight = chains[0] + chains[1] + chains[2] + chains[3];
  float total = 0;
  for (; i < n; i++) total += x[i];
  for (int c = 0; c < 8; c++) total += eight[c];
  return total;
}

}  // namespace pb

#undef PB_REGISTER  // it would make a string of anything
