"""The C++ functions that kernels call beside those of passbench.h. A kernel's text has those that it needs."""

import re

HEAD = """\
#include "passbench.h"
using pb::vec; using pb::ivec;
"""
PARTS = {
    "whole": "typedef int64_t whole __attribute__((vector_size(8 * pb::L)));\n",
    "doubles": "typedef double doubles __attribute__((vector_size(8 * pb::L)));\n",
    "reg is_whole element": """\
// Registers are of floats (vec), of doubles, of bools (ivec: -1 is true) or of whole numbers.
template <class T> constexpr bool is_whole = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T> using real = std::conditional_t<std::is_same_v<T, double>, doubles, vec>;
template <class T> using number = std::conditional_t<is_whole<T>, whole, real<T>>;
template <class T> using reg = std::conditional_t<std::is_same_v<T, bool>, ivec, number<T>>;
template <class T> inline auto element(const T* p) {
  if constexpr (std::is_same_v<T, bool>) return -int32_t(*p);
  else if constexpr (is_whole<T>) return int64_t(*p);
  else if constexpr (std::is_same_v<T, double>) return *p;
  else return pb::get(p);
}
""",
    "mask": "inline ivec mask(bool x) { return ivec{} - int32_t(x); }\n",
    "every": "inline whole every(int64_t x) { return whole{} + x; }\n",
    "by_halves equal below": """\
// GCC would compare registers of whole numbers, which are two of the machine's, lane by lane.
template <class F> inline ivec by_halves(whole x, whole y, F compared) {
  struct Halves { pb::lvec low, high; };
  auto a = pb::bits<Halves>(x), b = pb::bits<Halves>(y);
  return __builtin_convertvector(pb::bits<whole>(Halves{compared(a.low, b.low), compared(a.high, b.high)}), ivec);
}
inline ivec equal(whole x, whole y) { return by_halves(x, y, [](auto a, auto b) { return a == b; }); }
inline ivec below(whole x, whole y) { return by_halves(x, y, [](auto a, auto b) { return a < b; }); }
""",
    "chosen": """\
inline whole chosen(ivec mask, whole x, whole y) {
  whole wide = __builtin_convertvector(mask, whole);
  return (wide & x) | (~wide & y);
}
""",
    "line": """\
inline whole line(int64_t first, int64_t step) {
  whole x{};
  for (int i = 0; i < pb::L; i++) x[i] = first + i * step;
  return x;
}
""",
    "ramp": """\
inline vec ramp(float first, float step) {
  vec x{};
  for (int i = 0; i < pb::L; i++) x[i] = first + i * step;
  return x;
}
""",
    "wrapped": """\
template <class T> inline whole wrapped(whole x) {
  for (int i = 0; i < pb::L; i++) x[i] = T(x[i]);
  return x;
}
""",
    "All": """\
// A loop's body is there twice: for full registers (All), and for the lanes that are left at the end.
struct All { operator int64_t() const { return pb::L; } };
namespace pb {
template <class T> vec load(const T* p, All) { return load(p); }
template <class T> void store(T* p, vec x, All) { store(p, x); }
}
""",
    "move": """\
template <class T, class Count> inline void move(T* to, const T* from, Count lanes) {
  if constexpr (std::is_same_v<Count, All>) std::memcpy(to, from, pb::L * sizeof(T));
  else for (int64_t i = 0; i < lanes; i++) to[i] = from[i];
}
""",
    "spread": "template <class T> inline reg<T> spread(const T* p) { return reg<T>{} + element(p); }\n",
    "collect": """\
template <class T, class At> inline reg<T> collect(const T* p, int64_t lanes, At at) {
  if constexpr (std::is_class_v<T>) {  // halves are widened together
    pb::hvec x{};
    for (int64_t i = 0; i < lanes; i++) x[i] = p[at(i)].bits;
    return pb::widen(x, T{});
  } else {
    reg<T> x{};
    for (int64_t i = 0; i < lanes; i++) x[i] = element(p + at(i));
    return x;
  }
}
""",
    "gather": """\
template <class T> inline reg<T> gather(const T* p, int64_t step, int64_t lanes) {
  return collect(p, lanes, [=](int64_t i) { return i * step; });
}
""",
    "pick": """\
template <class T> inline reg<T> pick(const T* p, whole at, int64_t lanes) {
  return collect(p, lanes, [=](int64_t i) { return at[i]; });
}
""",
    "read": """\
template <class T> inline reg<T> read(const T* p, int64_t lanes) { return gather(p, 1, lanes); }
template <class T> inline reg<T> read(const T* p, All) {
  if constexpr (sizeof(reg<T>) == pb::L * sizeof(T)) {
    reg<T> x;
    std::memcpy(&x, p, sizeof x);
    return x;
  } else return gather(p, 1, pb::L);
}
""",
    "scatter": """\
template <class T> inline void scatter(T* p, int64_t step, reg<T> x, int64_t lanes) {
  if constexpr (std::is_class_v<T>) {
    pb::hvec y = pb::narrow(x, T{});
    for (int64_t i = 0; i < lanes; i++) p[i * step].bits = y[i];
  } else {
    for (int64_t i = 0; i < lanes; i++) p[i * step] = T(x[i]);
  }
}
""",
    "write": """\
template <class T> inline void write(T* p, reg<T> x, int64_t lanes) { scatter(p, 1, x, lanes); }
template <class T> inline void write(T* p, reg<T> x, All) {
  if constexpr (sizeof x == pb::L * sizeof(T)) std::memcpy(p, &x, sizeof x);
  else scatter(p, 1, x, pb::L);
}
""",
    "transpose get_transposed put_transposed": """\
// Transposes a square of registers: pairs of them exchange blocks of 1 lane, of 2, of 4 and so on.
template <int H = 1> inline void transpose(vec* rows) {
  if constexpr (H < pb::L) {
    ivec low, high;
    for (int i = 0; i < pb::L; i++) {
      low[i] = i & H ? pb::L + i - H : i;
      high[i] = i & H ? pb::L + i : i + H;
    }
    for (int i = 0; i < pb::L; i++) {
      if (i & H) continue;
      vec a = rows[i], b = rows[i + H];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + H] = __builtin_shuffle(a, b, high);
    }
    transpose<2 * H>(rows);
  }
}
// Reads `lanes` lines of `height` floats that lie `step` apart: a register for each place in a line.
template <class T> inline void get_transposed(vec* rows, const T* p, int64_t step, int64_t lanes, int64_t height) {
  if (height == pb::L) for (int64_t i = 0; i < lanes; i++) rows[i] = pb::load(p + i * step);
  else for (int64_t i = 0; i < lanes; i++) rows[i] = pb::load(p + i * step, height);
  transpose(rows);
}
template <class T> inline void put_transposed(vec* rows, T* p, int64_t step, int64_t lanes, int64_t height) {
  transpose(rows);
  if (height == pb::L) for (int64_t i = 0; i < lanes; i++) pb::store(p + i * step, rows[i]);
  else for (int64_t i = 0; i < lanes; i++) pb::store(p + i * step, rows[i], height);
}
""",
    "greater": """\
template <class V> inline V greater(V a, V b) { return ((a != a) | (a > b)) ? a : b; }  // NaN, if one of them is
""",
    "lesser": """\
template <class V> inline V lesser(V a, V b) { return ((a != a) | (a < b)) ? a : b; }  // NaN, if one of them is
""",
    "fused": """\
inline vec fused(vec a, vec b, vec c) {  // a * b + c, rounded once
#ifdef __FMA__
  return pb::fma(a, b, c);
#else
  for (int i = 0; i < pb::L; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return a;
#endif
}
""",
    "shift": """\
template <class T> inline vec shift(vec bias, vec mean, vec scale) {  // eager's batch norm rounds float16 twice here
  return std::is_same_v<T, pb::f16> ? bias - mean * scale : fused(-mean, scale, bias);
}
""",
    "bf16_rounded": """\
template <class T> inline vec bf16_rounded(vec x) {  // what eager rounds in bfloat16 alone
  return std::is_same_v<T, pb::bf16> ? pb::round<pb::bf16>(x) : x;
}
""",
    "remainder": """\
inline whole remainder(whole x, whole y) {  // has the sign of y
  y = y == 0 ? every(1) : y;  // as lanes without an element are; eager raises for an element of 0
  whole r = x % y;
  return (r != 0) & ((r < 0) ^ (y < 0)) ? r + y : r;
}
""",
    "each": """\
template <class V> inline V each(V x, double (*f)(double)) {
  for (int i = 0; i < pb::L; i++) x[i] = f(x[i]);
  return x;
}
""",
    "sine": """\
inline doubles sine(doubles x, int64_t quarters_ahead, double (*exact)(double)) {
  struct Halves { pb::dvec low, high; };
  auto [low, high] = pb::bits<Halves>(x);
  pb::dvec greatest = greater(greater(low, -low), greater(high, -high));
  int64_t far = 0;
  for (int i = 0; i < pb::L / 2; i++) far |= !(greatest[i] <= 0x1p30);
  if (far) return each(x, exact);
  return pb::bits<doubles>(Halves{pb::sine(low, quarters_ahead), pb::sine(high, quarters_ahead)});
}
""",
    "inverse_root": """\
inline vec inverse_root(vec x, double eps) {
  for (int i = 0; i < pb::L; i++) x[i] = float(1 / __builtin_sqrt(x[i] + eps));
  return x;
}
""",
    "part": """\
template <class V> inline V part(V x, int64_t lanes, V rest) {  // the first lanes of x, then those of rest
  for (int64_t i = lanes; i < pb::L; i++) x[i] = rest[i];
  return x;
}
inline vec part(vec x, int64_t lanes, vec rest) { return pb::first(lanes, x, rest); }
""",
    "Sum": """\
// Joins the values of a row. It adds 64 values at a time, so that long rows lose no accuracy.
template <class V> struct Sum {
  V all{}, some{};
  int count = 0;
  void add(V x) {
    some += x;
    if (++count == 64) { all += some; some = V{}; count = 0; }
  }
  void add(V x, All) { add(x); }
  void add(V x, int64_t lanes) { add(part(x, lanes, V{})); }
  V lanes() const { return all + some; }
  V row() const {
    V x = lanes();
    if constexpr (std::is_same_v<V, vec>) return pb::all(pb::total(x));
    for (int i = 1; i < pb::L; i++) x[0] += x[i];
    return V{} + x[0];
  }
};
""",
    "Cascade": """\
// Adds registers in the order of torch.sum for up to 65,536 rows: 16 at a time, then 16 of those, and so on. It
// adds the columns beyond a multiple of 32 otherwise.
template <class V> struct Cascade {
  V sums[4] = {};
  int64_t count = 0;
  void add(V x) {
    sums[0] += x;
    if (++count % 16) return;
    for (int level = 1; level < 4; level++) {
      sums[level] += sums[level - 1];
      sums[level - 1] = V{};
      if (count >> (4 * level) & 15) break;
    }
  }
  V lanes() const { return sums[0] + sums[1] + sums[2] + sums[3]; }
};
""",
    "Lanes": """\
// Adds a row as torch's softmax of halves does: in the lanes of a register, these in pairs, and then the terms left.
template <class V> struct Lanes {
  V sums[pb::L]{}, left[pb::L];
  int64_t count = 0;
  void add(vec x, All) { sums[0] += x; }
  void add(vec x, int64_t lanes) { left[0] = x, count = lanes; }
  vec row() const {
    float x = pb::total(sums[0]);
    for (int64_t i = 0; i < count; i++) x += left[0][i];
    return pb::all(x);
  }
  void add(vec x) {  // the lanes have rows of their own
    left[count++ % pb::L] = x;
    if (count % pb::L == 0) for (int i = 0; i < pb::L; i++) sums[i] += left[i];
  }
  vec lanes() {
    for (int half = pb::L / 2; half; half /= 2) for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    for (int64_t i = 0; i < count % pb::L; i++) sums[0] += left[i];
    return sums[0];
  }
};
""",
    "Chain": """\
template <class V> struct Chain {  // adds each term in turn, as eager's norm of float16 does
  V all{};
  void add(V x) { all += x; }
  void add(V x, All) { add(x, pb::L); }
  void add(V x, int64_t lanes) {
    for (int64_t i = 0; i < lanes; i++) all[0] += x[i];
  }
  V lanes() const { return all; }
  V row() const { return V{} + all[0]; }
};
""",
    "Moments": """\
// The mean of a row and the sum of squared distances from it, with the bits of torch's norms of halves: 16 chains,
// each begun anew after 16 steps, are joined in pairs. A value is a float of one row, or a register of many rows.
// Torch's compiler fused the last product of what is left for float16 alone.
typedef float eight __attribute__((vector_size(32)));
template <class V, class T> struct Moments {
  static constexpr bool one = std::is_same_v<V, float>;
  static constexpr int W = 16, WHOLE = 16 * W, K = one ? 1 : 8;
  using C = std::conditional_t<one, eight, vec>;
  struct Chains { int64_t n; C mean[K], squares[K]; };  // eight chains of n values each
  V held[WHOLE + pb::L], mean{}, total{};  // values to come, and the results
  Chains joined[24];  // of 16 steps, of twice as many, and so on
  int64_t count = 0, joins = 0;
  int levels = 0;
  void add(int level, int64_t n, const C* mean, const C* squares) {
    Chains& to = joined[level];
    if (level == levels) joined[levels++] = {};
    C part = C{} + float(n) / float(to.n + n), before = C{} + float(to.n);
    for (int k = 0; k < K; k++) {
      C d = mean[k] - to.mean[k], product = part * d;
      to.mean[k] += product;
      to.squares[k] = pb::fma(product * before, d, to.squares[k] + squares[k]);
    }
    to.n += n;
  }
  void join(int64_t steps) {
    static constexpr float parts[16] = {1, 1 / 2.f, 1 / 3.f, 1 / 4.f, 1 / 5.f, 1 / 6.f, 1 / 7.f, 1 / 8.f, 1 / 9.f,
      1 / 10.f, 1 / 11.f, 1 / 12.f, 1 / 13.f, 1 / 14.f, 1 / 15.f, 1 / 16.f};
    C means[2 * K], squares[2 * K];
    for (int k = 0; k < 2 * K; k++) {
      C x, m{}, s{};
      for (int64_t j = 0; j < steps; j++) {
        std::memcpy(&x, held + j * W + k * (W / (2 * K)), sizeof x);
        C d = x - m;
        m = pb::fma(d, C{} + parts[j], m);
        s = pb::fma(d, x - m, s);
      }
      means[k] = m;
      squares[k] = s;
    }
    add(0, steps, means, squares);
    add(0, steps, means + K, squares + K);
    joins++;
    for (int level = 0; !(joins >> level & 1); level++) {
      add(level + 1, joined[level].n, joined[level].mean, joined[level].squares);
      joined[level] = {};
    }
    count -= steps * W;
    std::memmove(held, held + steps * W, count * sizeof(V));
  }
  void add(vec x, int64_t lanes) {
    pb::store(held + count, x, lanes);
    if ((count += lanes) >= WHOLE) join(16);
  }
  void add(vec x, All) {
    pb::store(held + count, x);
    if ((count += pb::L) >= WHOLE) join(16);
  }
  void add(vec x) {
    held[count++] = x;
    if (count == WHOLE) join(16);
  }
  void end() {
    if (count >= W) join(count / W);
    for (int level = 1; level < levels; level++) {
      if (joined[level].n) add(0, joined[level].n, joined[level].mean, joined[level].squares);
    }
    for (int64_t i = 0; i < count; i++) {
      V d = held[i] - mean;
      mean += d / (V{} + float(i + 1));
      if constexpr (!std::is_same_v<T, pb::f16>) total += d * (held[i] - mean);
      else if constexpr (one) total = __builtin_fmaf(d, held[i] - mean, total);
      else total = pb::fma(d, held[i] - mean, total);
    }
    for (int i = 0; i < 8 && levels; i++) {
      int64_t n = joined[0].n;
      float part = float(n) / float(count + i * n + n), before = float(count + i * n);
      if constexpr (one) {
        float d = joined[0].mean[0][i] - mean;
        mean = __builtin_fmaf(part, d, mean);
        total += __builtin_fmaf(d * d * part, before, joined[0].squares[0][i]);
      } else {
        vec d = joined[0].mean[i] - mean;
        mean = pb::fma(vec{} + part, d, mean);
        total += pb::fma(d * d * part, vec{} + before, joined[0].squares[i]);
      }
    }
  }
  vec row() { end(); return pb::all(mean); }
  vec lanes() { end(); return mean; }
  vec squares() const { return vec{} + total; }
};
""",
    "Ordered": """\
struct Ordered {  // adds a row in the order of torch.sum, whose bits show where they are rounded twice
  float* terms;
  int64_t n = 0;
  void add(vec x, All) { pb::store(terms + n, x); n += pb::L; }
  void add(vec x, int64_t lanes) { pb::store(terms + n, x, lanes); n += lanes; }
  vec row() const {
    if (n >= 8) return pb::all(pb::sum_as_torch(n, terms));
    float chains[4] = {};  // of which the first one takes what is left after four terms
    for (int64_t i = 0; i < n; i++) chains[i < 4 ? i : 0] += terms[i];
    return pb::all(chains[0] + chains[1] + chains[2] + chains[3]);
  }
};
""",
    "Running": """\
template <class V> struct Running {  // the sum so far: of each lane, or along the lanes
  std::conditional_t<std::is_same_v<V, vec>, double, int64_t> so_far[pb::L] = {};
  V add(V x) {
    for (int i = 0; i < pb::L; i++) x[i] = so_far[i] += x[i];
    return x;
  }
  V add(V x, int64_t lanes) {
    for (int64_t i = 0; i < lanes; i++) x[i] = so_far[0] += x[i];
    return x;
  }
};
""",
    "Greatest": """\
template <class V> struct Greatest {
  V all = V{} + INT64_MIN;
  void add(V x) { all = greater(x, all); }
  void add(V x, All) { add(x); }
  void add(V x, int64_t lanes) { add(part(x, lanes, all)); }
  V lanes() const { return all; }
  V row() const {
    auto x = all[0];
    for (int i = 1; i < pb::L; i++) x = greater(x, all[i]);
    return V{} + x;
  }
};
template <> struct Greatest<vec> {  // compares with four values in turn, since a comparison waits for the one before
  vec next = vec{} - __builtin_inff(), second = next, third = next, last = next;
  void add(vec x) {
    x = greater(x, next);
    next = second, second = third, third = last, last = x;
  }
  void add(vec x, All) { add(x); }
  void add(vec x, int64_t lanes) { add(part(x, lanes, next)); }
  vec lanes() const { return greater(greater(next, second), greater(third, last)); }
  vec row() const {
    return pb::all(pb::fold(lanes(), [](auto a, auto b) { return greater(a, b); }));
  }
};
""",
}
"""The functions by the names that each text defines, in an order in which they can stand."""


def prelude(body: str) -> str:
    """Return the functions that a text calls, and those that these call."""
    parts, words = "", set(re.findall(r"\w+", body))
    for names, part in reversed(PARTS.items()):
        if not words.isdisjoint(names.split()):
            parts, words = part + parts, words.union(re.findall(r"\w+", part))
    return HEAD + parts
