"""Kernels shared by the passes that end in a layer norm of a sum."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
// s = x * gamma + y (or x + y without gamma), rounded as eager's tensors are; out = (s - mean) / std * w + b
template <class T> void run(const T* x, const T* gamma, const T* y, const T* w, const T* b, T* sum, T* out,
                            int64_t rows, int64_t d, float eps) {
  pb::buffer row(d);
  float* s = row.data;
  auto add = [](vec a, vec c) { return pb::round<T>(a + c); };
  auto scaled = [=](vec a, vec c, vec g) { return add(pb::round<T>(a * g), c); };
  for (int64_t r = 0; r < rows; r++, x += d, y += d, out += d) {
    float mean = (gamma ? pb::map_sum(d, s, scaled, x, y, gamma) : pb::map_sum(d, s, add, x, y)) / d;
    if (sum) pb::map(d, sum + r * d, [](vec a) { return a; }, s);
    float var = pb::sum(d, [=](vec a) { return (a - mean) * (a - mean); }, s) / d;
    float scale = 1 / __builtin_sqrtf(var + eps);
    pb::map(d, out, [=](vec a, vec w, vec b) { return (a - mean) * scale * w + b; }, s, w, b);
  }
}
extern "C" void add_layer_norm(pb::in x, pb::in gamma, pb::in y, pb::in w, pb::in b, pb::out sum, pb::out out,
                               int64_t rows, int64_t d, double eps, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, gamma, y, w, b, sum, out, rows, d, eps); });
}
""")


def add_layer_norm(x, gamma, y, w, b, eps, route):
    """x, y: [..., d]; gamma (or None), w, b: [d]. Returns the norm, or on the route "both" the sum and the norm."""
    if w is None:
        raise ValueError("add_layer_norm: no kernel for a norm without a weight")
    d = w.numel()
    b = torch.zeros_like(w) if b is None else b
    if gamma is not None and gamma.numel() != d:  # a product matches in either order
        x, gamma = gamma, x
    weights = (w, b) if gamma is None else (w, b, gamma)
    require_one_dtype("add_layer_norm", x, y, *weights)
    if x.shape != y.shape or any(z.numel() != x.shape[-1] or z.shape[-1] != x.shape[-1] for z in weights):
        shapes = ", ".join(str(tuple(z.shape)) for z in (x, y, *weights))
        raise ValueError(f"add_layer_norm: no kernel for shapes {shapes}")
    out = torch.empty_like(x)
    total = torch.empty_like(x) if route == "both" else None
    lib.add_layer_norm(x, gamma, y, w, b, total, out, x.numel() // d, d, eps, x.dtype)
    return out if total is None else (total, out)
