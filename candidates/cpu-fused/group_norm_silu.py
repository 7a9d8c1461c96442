"""The usual block of diffusion models: group_norm, silu."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, const T* w, const T* b, T* out, int64_t batch, int64_t channels,
                            int64_t plane, int64_t groups, float eps) {
  int64_t each = channels / groups, n = each * plane;
  for (int64_t g = 0; g < batch * groups; g++, x += n, out += n) {
    double total = 0, squares = 0;  // in parts: one long sum of floats would lose the bits that silu shows
    for (int64_t i = 0; i < each; i++) total += pb::sum(plane, [](vec a) { return a; }, x + i * plane);
    float mean = total / n;
    for (int64_t i = 0; i < each; i++)
      squares += pb::sum(plane, [=](vec a) { return (a - mean) * (a - mean); }, x + i * plane);
    float var = squares / n;
    for (int64_t i = 0; i < each; i++) {
      int64_t c = g % groups * each + i;
      float scale = pb::get(w + c) / __builtin_sqrtf(var + eps), shift = pb::get(b + c) - mean * scale;
      auto f = [=](vec a) { return pb::silu(pb::round<T>(a * scale + shift)); };
      pb::map(plane, out + i * plane, f, x + i * plane);
    }
  }
}
extern "C" void group_norm_silu(pb::in x, pb::in w, pb::in b, pb::out out, int64_t batch, int64_t channels,
                                int64_t plane, int64_t groups, double eps, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, w, b, out, batch, channels, plane, groups, eps); });
}
""")


def pattern(x, groups, w, b, eps):
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, w, b, eps))


def replacement_args(x, groups, w, b, eps):
    return x, groups, w, b, eps


def group_norm_silu(x, groups, w, b, eps):
    """x: [n, c, ...]; w, b: [c]."""
    require_one_dtype("group_norm_silu", x, w, b)
    n, c = x.shape[:2]
    out = torch.empty_like(x)
    lib.group_norm_silu(x, w, b, out, n, c, x.numel() // (n * c), groups, eps, x.dtype)
    return out


def replacement_func():
    return group_norm_silu
