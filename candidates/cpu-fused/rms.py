"""Kernel shared by the RMS-norm passes: a row (or the sum of two) over its root mean square, times a weight."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
// X: the type of x, sum and out; T: of y and the weight. With an offset, the weight is offset + w, in float.
template <class X, class T> void run(const X* x, const T* y, const T* w, X* sum, X* out, int64_t rows, int64_t d,
                                     float eps, float offset) {
  pb::buffer row(d), squares(d);
  float *s = row.data, *q = squares.data;
  for (int64_t r = 0; r < rows; r++, x += d, out += d) {
    if (y) pb::map(d, s, [](vec a, vec c) { return pb::round<X>(a + c); }, x, y + r * d);
    else pb::map(d, s, [](vec a) { return a; }, x);
    if (sum) pb::map(d, sum + r * d, [](vec a) { return a; }, s);
    pb::map(d, q, [](vec a) { return a * a; }, s);
    float mean = pb::sum_as_torch(d, q) / d;
    float scale = 1 / __builtin_sqrtf(mean + eps);
    if (offset) pb::map(d, out, [=](vec a, vec g) { return a * scale * (offset + g); }, s, w);
    else pb::map(d, out, [=](vec a, vec g) { return pb::round<X>(a * scale) * g; }, s, w);
  }
}
extern "C" void rms_norm(pb::in x, pb::in y, pb::in w, pb::out sum, pb::out out, int64_t rows, int64_t d,
                         double eps, double offset, pb::dtype dtype, bool wide) {
  pb::dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    if (wide) run<float, T>(x, y, w, sum, out, rows, d, eps, offset);
    else run<T, T>(x, y, w, sum, out, rows, d, eps, offset);
  });
}
""")


def rms_norm(x, y, w, eps, offset, dtype, route):
    """x, y (or None): [..., d], w: [d]. Returns the norm, or on the route "both" the sum and the norm.

    x and the result have one dtype; where that is not the weight's, it is float32.
    """
    if y is not None and x.dtype != dtype:  # a sum matches in either order
        x, y = y, x
    if x.dtype != dtype or dtype not in (w.dtype, torch.float32) or w.shape != x.shape[-1:]:
        raise ValueError(f"rms_norm: no kernel for {x.dtype} of {tuple(x.shape)} and {w.dtype} of {tuple(w.shape)}")
    if y is not None and (y.dtype != w.dtype or y.shape != x.shape):
        raise ValueError(f"rms_norm: no kernel for a sum with {y.dtype} of {tuple(y.shape)}")
    d = w.numel()
    out = torch.empty_like(x)
    total = torch.empty_like(x) if route == "both" else None
    lib.rms_norm(x, y, w, total, out, x.numel() // d, d, eps, offset, w.dtype, dtype != w.dtype)
    return out if total is None else (total, out)
