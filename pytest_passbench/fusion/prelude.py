"""The C++ functions that kernels call beside those of passbench.h. A kernel's text has those that it needs."""

import re

from pytest_passbench.fusion.product_functions import PRODUCT_FUNCTIONS
from pytest_passbench.fusion.reducers import REDUCER_TYPES

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
    **REDUCER_TYPES,
    **PRODUCT_FUNCTIONS,
}
"""The functions by the names that each text defines, in an order in which they can stand."""


def prelude(body: str) -> str:
    """Return the functions that a text calls, and those that these call."""
    parts, words = "", set(re.findall(r"\w+", body))
    for names, part in reversed(PARTS.items()):
        if not words.isdisjoint(names.split()):
            parts, words = part + parts, words.union(re.findall(r"\w+", part))
    return HEAD + parts
