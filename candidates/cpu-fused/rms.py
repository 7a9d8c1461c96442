"""Kernel shared by the RMS-norm passes: x times the inverse root of its rows' mean square, times a weight."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
// offset = 0: the normed row is rounded to T before the weight. Else the weight is 1 + w, and nothing is rounded.
template <class T> void run(const T* x, const T* w, T* out, int64_t rows, int64_t d, float eps, float offset) {
  for (int64_t r = 0; r < rows; r++, x += d, out += d) {
    float mean = pb::sum(d, [](pb::vec a) { return a * a; }, x) / d;
    float scale = 1 / __builtin_sqrtf(mean + eps);
    if (offset) pb::map(d, out, [=](pb::vec a, pb::vec g) { return a * scale * (offset + g); }, x, w);
    else pb::map(d, out, [=](pb::vec a, pb::vec g) { return pb::round<T>(a * scale) * g; }, x, w);
  }
}
extern "C" void rms_norm(pb::in x, pb::in w, pb::out out, int64_t rows, int64_t d, double eps, double offset,
                         pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, w, out, rows, d, eps, offset); });
}
""")


def rms_norm(x, w, eps, offset):
    """x: [..., d], w: [d], of one dtype."""
    d = w.numel()
    out = torch.empty_like(x)
    lib.rms_norm(x, w, out, x.numel() // d, d, eps, offset, x.dtype)
    return out
