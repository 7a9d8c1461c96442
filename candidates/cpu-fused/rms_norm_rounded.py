"""T5's RMS norm in one dtype throughout: pow, mean, add, rsqrt, mul, mul."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, const T* y, const T* w, T* out, int64_t rows, int64_t d, float eps) {
  pb::buffer squares(d);
  float* q = squares.data;
  for (int64_t r = 0; r < rows; r++, x += d, y += d, out += d) {
    pb::map(d, q, [](vec a) { return pb::round<T>(a * a); }, x);
    float mean = pb::round<T>(pb::sum_as_torch(d, q) / d);
    float scale = pb::round<T>(1 / __builtin_sqrtf(pb::round<T>(mean + eps)));
    pb::map(d, out, [=](vec a, vec g) { return pb::round<T>(a * scale) * g; }, y, w);
  }
}
extern "C" void rms_norm(pb::in x, pb::in y, pb::in w, pb::out out, int64_t rows, int64_t d, double eps,
                         pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, w, out, rows, d, eps); });
}
""")


def pattern(x, y, w, eps):
    return w * (y * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def replacement_args(x, y, w, eps):
    return x, y, w, eps


def rms_norm(x, y, w, eps):
    """x gives the scale, y is scaled (mostly the same): [..., d]; w: [d]."""
    require_one_dtype("rms_norm", x, y, w)
    if x.shape != y.shape or w.shape != x.shape[-1:]:
        shapes = f"{tuple(x.shape)}, {tuple(y.shape)} and {tuple(w.shape)}"
        raise ValueError(f"rms_norm: no kernel for shapes {shapes}")
    d = w.numel()
    out = torch.empty_like(y)
    lib.rms_norm(x, y, w, out, y.numel() // d, d, eps, y.dtype)
    return out


def replacement_func():
    return rms_norm
