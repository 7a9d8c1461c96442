"""Kernel shared by the passes of an inference batch norm and an activation, which the route names."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T, class F> void run(const T* x, const T* mean, const T* var, const T* w, const T* b, T* out,
                                     int64_t batch, int64_t channels, int64_t plane, float eps, F activate) {
  for (int64_t i = 0; i < batch; i++)
    for (int64_t c = 0; c < channels; c++, x += plane, out += plane) {
      float inverse = 1 / __builtin_sqrtf(pb::get(var + c) + eps), scale = inverse * pb::get(w + c);
      volatile float moved = pb::get(mean + c) * scale;  // rounded before the difference, as eager does
      float shift = pb::get(b + c) - moved;
      pb::map(plane, out, [=](vec a) { return activate(pb::round<T>(a * scale + shift)); }, x);
    }
}
extern "C" void batch_norm(pb::in x, pb::in mean, pb::in var, pb::in w, pb::in b, pb::out out, int64_t batch,
                           int64_t channels, int64_t plane, double eps, bool silu, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    if (silu) run<T>(x, mean, var, w, b, out, batch, channels, plane, eps, [](vec a) { return pb::silu(a); });
    else run<T>(x, mean, var, w, b, out, batch, channels, plane, eps, [](vec a) { return pb::relu(a); });
  });
}
""")


def batch_norm(x, mean, var, w, b, eps, route):
    """x: [n, c, ...]; the others: [c]."""
    require_one_dtype("batch_norm", x, mean, var, w, b)
    n, c = x.shape[:2]
    out = torch.empty_like(x)
    lib.batch_norm(x, mean, var, w, b, out, n, c, x.numel() // (n * c), eps, route == "silu", x.dtype)
    return out
