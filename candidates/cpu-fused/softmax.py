"""Kernel shared by the attention passes: scale, mask and softmax over the last dimension."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
// x: [n0, n1, n2, d]; the mask has strides m0, m1, m2, which are 0 where it is broadcast.
template <class T> void run(const T* x, const T* mask, T* out, int64_t n0, int64_t n1, int64_t n2, int64_t d,
                            int64_t m0, int64_t m1, int64_t m2, float scale) {
  pb::buffer row(d);
  float* s = row.data;
  for (int64_t i = 0; i < n0; i++) for (int64_t j = 0; j < n1; j++) for (int64_t k = 0; k < n2; k++, x += d, out += d) {
    auto scaled = [=](vec a) { return pb::round<T>(a * scale); };
    float top = mask ? pb::map_greatest(d, s, [=](vec a, vec m) { return pb::round<T>(scaled(a) + m); }, x,
                                        mask + i * m0 + j * m1 + k * m2)
                     : pb::map_greatest(d, s, scaled, x);
    float total = pb::map_sum(d, s, [=](vec a) { return pb::exp(a - top); }, s);
    float inverse = 1 / total;
    pb::map(d, out, [=](vec a) { return a * inverse; }, s);
  }
}
extern "C" void softmax(pb::in x, pb::in mask, pb::out out, int64_t n0, int64_t n1, int64_t n2, int64_t d,
                        int64_t m0, int64_t m1, int64_t m2, double scale, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, mask, out, n0, n1, n2, d, m0, m1, m2, scale); });
}
""")


def scaled_softmax(x, scale):
    """softmax(x * scale) over the last dimension."""
    d = x.shape[-1]
    out = torch.empty_like(x)
    lib.softmax(x, None, out, 1, 1, x.numel() // d, d, 0, 0, 0, scale, x.dtype)
    return out


def masked_softmax(x, mask, scale):
    """softmax(x * scale + mask) over the last dimension; x: [b, h, rows, d], mask: 4 dimensions that broadcast to it."""
    if mask.shape[-1] != x.shape[-1] or mask.stride(-1) != 1 or mask.dtype != x.dtype:
        raise ValueError(f"softmax: no kernel for a {mask.dtype} mask of shape {tuple(mask.shape)}")
    m0, m1, m2 = [0 if n == 1 else s for n, s in zip(mask.shape[:3], mask.stride())]
    out = torch.empty_like(x)
    lib.softmax(x, mask.data_ptr(), out, *x.shape, m0, m1, m2, scale, x.dtype)
    return out
