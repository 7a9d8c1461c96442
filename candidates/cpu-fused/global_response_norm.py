"""ConvNeXt V2's global response norm, from the channels' norms on: mean, add, div, mul, mul, add."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* norm, const T* x, const T* w, const T* b, T* out, int64_t batch, int64_t rows,
                            int64_t d, float eps) {
  pb::buffer norms(d), shares(d);
  for (int64_t n = 0; n < batch; n++, norm += d) {
    pb::map(d, norms.data, [](vec a) { return a; }, norm);
    float mean = pb::round<T>(pb::round<T>(vec{} + pb::sum_as_torch(d, norms.data) / d) + eps)[0];
    pb::map(d, shares.data, [=](vec a) { return pb::round<T>(a / mean); }, norms.data);
    for (int64_t r = 0; r < rows; r++, x += d, out += d) {
      auto f = [](vec a, vec s, vec w, vec b) { return pb::round<T>(w * pb::round<T>(a * s)) + b; };
      pb::map(d, out, f, x, shares.data, w, b);
    }
  }
}
extern "C" void response_norm(pb::in norm, pb::in x, pb::in w, pb::in b, pb::out out, int64_t batch, int64_t rows,
                              int64_t d, double eps, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(norm, x, w, b, out, batch, rows, d, eps); });
}
""")


def pattern(norm, x, w, b, eps):
    return w * (x * (norm / (norm.mean(dim=-1, keepdim=True) + eps))) + b


def replacement_args(norm, x, w, b, eps):
    return norm, x, w, b, eps


def response_norm(norm, x, w, b, eps):
    """norm: [n, 1, ..., d], or one row; x: [n, ..., d]; w, b: d elements."""
    require_one_dtype("response_norm", norm, x, w, b)
    d = norm.shape[-1]
    if w.numel() != d:  # a product matches in either order
        x, w = w, x
    batch = norm.numel() // d
    widths = {w.numel(), b.numel(), *(y.shape[-1] for y in (x, w, b))}
    if widths != {d} or norm.dim() != x.dim() or norm.shape[0] != batch or batch not in (1, x.shape[0]):
        shapes = ", ".join(str(tuple(y.shape)) for y in (norm, x, w, b))
        raise ValueError(f"response_norm: no kernel for shapes {shapes}")
    out = torch.empty_like(x)
    lib.response_norm(norm, x, w, b, out, batch, x.numel() // (batch * d), d, eps, x.dtype)
    return out


def replacement_func():
    return response_norm
