"""Rotary position embedding: mul, getitem, getitem, neg, cat, mul, add. The heads may be a transposed view."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
// x, out: [n0, n1, n2, width] with strides x0, x1, x2, 1; cos, sin likewise with c0, c1, c2, 1.
template <class T>
void run(const T* x, const T* cos, const T* sin, T* out, int64_t n0, int64_t n1, int64_t n2,
         int64_t width, int64_t half, int64_t x0, int64_t x1, int64_t x2, int64_t c0, int64_t c1, int64_t c2) {
  auto minus = [](vec a, vec b, vec c, vec s) { return pb::round<T>(a * c) - pb::round<T>(b * s); };
  auto plus = [](vec a, vec b, vec c, vec s) { return pb::round<T>(a * c) + pb::round<T>(b * s); };
  int64_t rest = width - half;
  for (int64_t i = 0; i < n0; i++) for (int64_t j = 0; j < n1; j++) for (int64_t k = 0; k < n2; k++) {
    int64_t at = i * x0 + j * x1 + k * x2, turn = i * c0 + j * c1 + k * c2;
    const T *a = x + at, *c = cos + turn, *s = sin + turn;
    pb::map(rest, out + at, minus, a, a + half, c, s);
    pb::map(half, out + at + rest, plus, a + rest, a, c + rest, s + rest);
  }
}
extern "C" void rotary(pb::in x, pb::in cos, pb::in sin, pb::out out, int64_t n0, int64_t n1, int64_t n2,
                       int64_t width, int64_t half, int64_t x0, int64_t x1, int64_t x2, int64_t c0, int64_t c1,
                       int64_t c2, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) {
    run<decltype(t)>(x, cos, sin, out, n0, n1, n2, width, half, x0, x1, x2, c0, c1, c2);
  });
}
""")


def pattern(x, cos, sin, half):
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def replacement_args(x, cos, sin, half):
    return x, cos, sin, half


def rotary(x, cos, sin, half):
    """x: [b, h, s, width]; cos, sin: of one shape, as x or with ones before the width; 0 <= half <= width."""
    require_one_dtype("rotary", x, cos, sin)
    out = torch.empty_like(x)
    n0, n1, n2, width = cos.shape
    c0, c1, c2, _ = cos.stride()
    if cos.shape != sin.shape or width != x.shape[-1] or not 0 <= half <= width:
        shapes = f"{tuple(x.shape)}, {tuple(cos.shape)} and {tuple(sin.shape)}"
        raise ValueError(f"rotary: no kernel for shapes {shapes} and {half} as the half")
    if out.stride() != x.stride() or cos.stride() != sin.stride() or {x.stride(-1), cos.stride(-1)} != {1}:
        raise ValueError(f"rotary: no kernel for strides {x.stride()}, {cos.stride()} and {sin.stride()}")
    turns = 0 if n0 == 1 else c0, 0 if n1 == 1 else c1, 0 if n2 == 1 else c2
    at = x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr()
    lib.rotary(*at, *x.shape, half, *x.stride()[:3], *turns, x.dtype)
    return out


def replacement_func():
    return rotary
