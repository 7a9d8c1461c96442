"""ConvNeXt's residual addition, move of the channels to the end, and layer norm: add, permute, layer_norm."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
using pb::L;
// x, y: [batch, d, plane]; out: [batch, plane, d]. L places at a time: their statistics are lanes of a vector.
template <class T> void run(const T* x, const T* y, const T* w, const T* b, T* out, int64_t batch, int64_t d,
                            int64_t plane, float eps) {
  pb::buffer tile(L * d), row(d);
  float *s = tile.data, *r = row.data;
  for (int64_t i = 0; i < batch; i++, x += d * plane, y += d * plane)
    for (int64_t p = 0; p < plane; p += L) {
      int64_t count = plane - p < L ? plane - p : L;
      vec mean{}, var{};
      for (int64_t c = 0; c < d; c++) {
        int64_t at = c * plane + p;
        vec a = pb::round<T>(count == L ? pb::load(x + at) + pb::load(y + at)
                                        : pb::load(x + at, count) + pb::load(y + at, count));
        pb::store(s + c * L, a);
        mean += a;
      }
      mean /= float(d);
      for (int64_t c = 0; c < d; c++) {
        vec off = pb::load(s + c * L) - mean;
        var += off * off;
      }
      vec scale = 1 / pb::sqrt(var / float(d) + eps);
      for (int64_t c = 0; c < d; c++) pb::store(s + c * L, (pb::load(s + c * L) - mean) * scale);
      for (int64_t lane = 0; lane < count; lane++, out += d) {
        for (int64_t c = 0; c < d; c++) r[c] = s[c * L + lane];
        pb::map(d, out, [](vec a, vec w, vec b) { return a * w + b; }, r, w, b);
      }
    }
}
extern "C" void add_permute_layer_norm(pb::in x, pb::in y, pb::in w, pb::in b, pb::out out, int64_t batch, int64_t d,
                                       int64_t plane, double eps, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, w, b, out, batch, d, plane, eps); });
}
""")


def pattern(x, y, shape, w, b, eps):
    return torch.nn.functional.layer_norm((x + y).permute(0, 2, 3, 1), shape, w, b, eps)


def replacement_args(x, y, shape, w, b, eps):
    return x, y, w, b, eps


def add_permute_layer_norm(x, y, w, b, eps):
    """x, y: [n, d, h, w] of one shape; w, b: [d]."""
    require_one_dtype("add_permute_layer_norm", x, y, w, b)
    n, d, height, width = x.shape
    if y.shape != x.shape or w.shape != (d,):
        shapes = f"{tuple(x.shape)}, {tuple(y.shape)} and {tuple(w.shape)}"
        raise ValueError(f"add_permute_layer_norm: no kernel for shapes {shapes}")
    out = torch.empty((n, height, width, d), dtype=x.dtype)
    lib.add_permute_layer_norm(x.contiguous(), y.contiguous(), w, b, out, n, d, height * width, eps, x.dtype)
    return out


def replacement_func():
    return add_permute_layer_norm
