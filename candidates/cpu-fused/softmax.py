"""Kernel shared by the attention passes: softmax over the last dimension of a few operands that broadcast."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
struct Strides { int64_t i, j, k, l; };
// out: [n0, n1, n2, n3, d]. Every operand has whole rows, and strides for the dimensions before them.
template <class T, class Y, class F, class... X>
void rows(F f, Y* out, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int64_t d, X... x) {
  pb::buffer row(d);
  float* r = row.data;
  for (int64_t i = 0; i < n0; i++) for (int64_t j = 0; j < n1; j++) for (int64_t k = 0; k < n2; k++)
    for (int64_t l = 0; l < n3; l++, out += d) {
      float top = pb::map_greatest(d, r, f, (x.at + i * x.s.i + j * x.s.j + k * x.s.k + l * x.s.l)...);
      float inverse = 1 / pb::map_sum(d, r, [=](vec a) { return pb::exp_nonpositive(a - top); }, r);
      pb::map(d, out, [=](vec a) { return a * inverse; }, r);
    }
}
template <class T> struct Operand { const T* at; Strides s; };
template <class T, class Y> void run(int64_t kind, const T* a, const T* b, const T* c, Y* out, int64_t n0, int64_t n1,
    int64_t n2, int64_t n3, int64_t d, Strides sa, Strides sb, Strides sc, float p) {
  auto R = [](vec x) { return pb::round<T>(x); };
  Operand<T> x{a, sa}, y{b, sb}, z{c, sc};
  if (kind == 0) rows<T>([=](vec a) { return R(a * p); }, out, n0, n1, n2, n3, d, x);
  if (kind == 1) rows<T>([=](vec a, vec b) { return R(R(a * p) + b); }, out, n0, n1, n2, n3, d, x, y);
  auto cap = [=](vec a) { return R(p * R(pb::tanh(R(a / p)))); };
  if (kind == 2) rows<T>([=](vec a, vec b) { return R(cap(a) + b); }, out, n0, n1, n2, n3, d, x, y);
  if (kind == 3) rows<T>([=](vec a, vec b, vec c) { return R(R(a + b) + c); }, out, n0, n1, n2, n3, d, x, y, z);
}
extern "C" void softmax(int64_t kind, pb::in a, pb::in b, pb::in c, pb::out out, int64_t n0, int64_t n1, int64_t n2,
    int64_t n3, int64_t d, int64_t a0, int64_t a1, int64_t a2, int64_t a3, int64_t b0, int64_t b1, int64_t b2,
    int64_t b3, int64_t c0, int64_t c1, int64_t c2, int64_t c3, double p, pb::dtype dtype, bool wide) {
  Strides sa{a0, a1, a2, a3}, sb{b0, b1, b2, b3}, sc{c0, c1, c2, c3};
  pb::dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    if (wide) run<T, float>(kind, a, b, c, out, n0, n1, n2, n3, d, sa, sb, sc, p);
    else run<T, T>(kind, a, b, c, out, n0, n1, n2, n3, d, sa, sb, sc, p);
  });
}
""")
NONE = (0, 0, 0, 0)


def strides(x):
    """The strides of x: [i, j, k, d] with dense rows, as the kernel takes them: 0 where x is broadcast."""
    n1, n2, n3, d = x.shape
    s1, s2, s3, step = x.stride()
    if step != 1 and d != 1:
        raise ValueError(f"softmax: no kernel for strides {x.stride()}")
    return 0, 0 if n1 == 1 else s1, 0 if n2 == 1 else s2, 0 if n3 == 1 else s3


def output(sizes, x, dtype, between=torch.float32):
    """Room for the result, and whether it is wider than x. The softmax itself is of the dtype `between`, or None."""
    if (between or x.dtype) not in (torch.float32, dtype):  # the kernel rounds once
        raise ValueError(f"softmax: no kernel for {x.dtype} to {between or x.dtype} to {dtype}")
    if dtype is not None and dtype != x.dtype and dtype != torch.float32:
        raise ValueError(f"softmax: no kernel for {x.dtype} to {dtype}")
    out = torch.empty(sizes, dtype=x.dtype if dtype is None else dtype)
    return out, out.dtype != x.dtype


def plain(x, scale, dtype):
    """softmax(x * scale)"""
    d = x.shape[-1]
    out, wide = output(x.shape, x, dtype)
    lib.softmax(0, x, None, None, out, 1, 1, 1, x.numel() // d, d, 0, 0, 0, d, *NONE, *NONE, scale, x.dtype, wide)
    return out


def masked(x, mask, number, between, dtype, route):
    """softmax(x * number + mask), or on the route "capped" softmax(tanh(x / number) * number + mask); 4-d.

    The softmax is of the dtype `between`; `dtype` is the result's.
    """
    n1, n2, n3, d = x.shape
    if mask.dtype != x.dtype or mask.shape[-1] != d:
        raise ValueError(f"softmax: no kernel for a {mask.dtype} mask of shape {tuple(mask.shape)}")
    out, wide = output(x.shape, x, dtype, between)
    kind = 2 if route == "capped" else 1
    at = mask.data_ptr()
    lib.softmax(kind, x, at, None, out, 1, n1, n2, n3, d, *strides(x), *strides(mask), *NONE, number, x.dtype, wide)
    return out


def biased(a, b, c, dtype):
    """softmax(a + b + c); 4 dimensions, each operand may broadcast."""
    a1, a2, a3, d = a.shape
    b1, b2, b3, b_row = b.shape
    c1, c2, c3, c_row = c.shape
    if not (a.dtype == b.dtype == c.dtype and d == b_row == c_row):
        raise ValueError(f"softmax: no kernel for shapes {tuple(a.shape)}, {tuple(b.shape)} and {tuple(c.shape)}")
    n1, n2, n3 = max(a1, b1, c1), max(a2, b2, c2), max(a3, b3, c3)
    out, wide = output((n1, n2, n3, d), a, dtype)
    at = a.data_ptr(), b.data_ptr(), c.data_ptr()
    lib.softmax(3, *at, out, 1, n1, n2, n3, d, *strides(a), *strides(b), *strides(c), 0.0, a.dtype, wide)
    return out
