"""Rotary position embedding: mul, getitem, getitem, neg, cat, mul, add. The heads may be a transposed view."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
// x, out: [n0, n1, n2, 2 half] with strides x0, x1, x2, 1; cos, sin likewise with c0, c1, c2, 1.
template <class T>
void run(const T* x, const T* cos, const T* sin, T* out, int64_t n0, int64_t n1, int64_t n2, int64_t half,
         int64_t x0, int64_t x1, int64_t x2, int64_t c0, int64_t c1, int64_t c2) {
  auto first = [](vec a, vec b, vec c, vec s) { return pb::round<T>(a * c) - pb::round<T>(b * s); };
  auto second = [](vec a, vec b, vec c, vec s) { return pb::round<T>(b * c) + pb::round<T>(a * s); };
  for (int64_t i = 0; i < n0; i++) for (int64_t j = 0; j < n1; j++) for (int64_t k = 0; k < n2; k++) {
    int64_t at = i * x0 + j * x1 + k * x2, turn = i * c0 + j * c1 + k * c2;
    const T *a = x + at, *b = a + half, *c = cos + turn, *s = sin + turn;
    pb::map(half, out + at, first, a, b, c, s);
    pb::map(half, out + at + half, second, a, b, c + half, s + half);
  }
}
extern "C" void rotary(pb::in x, pb::in cos, pb::in sin, pb::out out, int64_t n0, int64_t n1, int64_t n2,
                       int64_t half, int64_t x0, int64_t x1, int64_t x2, int64_t c0, int64_t c1, int64_t c2,
                       pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, cos, sin, out, n0, n1, n2, half, x0, x1, x2, c0, c1, c2); });
}
""")


def pattern(x, cos, sin, half):
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def replacement_args(x, cos, sin, half):
    return x, cos, sin, half


def rotary(x, cos, sin, half):
    """x: [b, h, s, 2 half]; cos, sin broadcast to it."""
    out = torch.empty_like(x)
    c0, c1, c2 = [0 if n == 1 else s for n, s in zip(cos.shape[:3], cos.stride()[:3], strict=True)]
    if out.stride() != x.stride() or x.stride(-1) != 1 or cos.stride() != sin.stride() or cos.shape[-1] != 2 * half:
        raise ValueError(f"rotary: no kernel for strides {x.stride()} and {cos.stride()}")
    pointers = [t.data_ptr() for t in (x, cos, sin, out)]
    lib.rotary(*pointers, *x.shape[:3], half, *x.stride()[:3], c0, c1, c2, x.dtype)
    return out


def replacement_func():
    return rotary
