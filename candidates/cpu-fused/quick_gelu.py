"""CLIP's gelu: mul, sigmoid, mul."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, T* out, int64_t n) {
  pb::map(n, out, [](vec a) { return a * pb::round<T>(pb::sigmoid(pb::round<T>(1.702f * a))); }, x);
}
extern "C" void quick_gelu(pb::in x, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, out, n); });
}
""")


def pattern(x):
    return x * torch.sigmoid(1.702 * x)


def replacement_args(x):
    return (x,)


def quick_gelu(x):
    out = torch.empty_like(x)
    lib.quick_gelu(x, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return quick_gelu
