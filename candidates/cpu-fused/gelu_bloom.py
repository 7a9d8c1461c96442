"""BLOOM's gelu, written out: mul, mul, mul, mul, add, mul, tanh, add, mul."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, T* out, int64_t n) {
  auto formula = [](vec a) {
    vec bend = pb::round<T>(1 + pb::round<T>(pb::round<T>(0.044715f * a) * a));
    vec turn = pb::tanh(pb::round<T>(pb::round<T>(0.79788456f * a) * bend));
    return 0.5f * a * pb::round<T>(1 + pb::round<T>(turn));
  };
  pb::map(n, out, formula, x);
}
extern "C" void gelu_bloom(pb::in x, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, out, n); });
}
""")


def pattern(x):
    inner = 0.79788456 * x * (1 + 0.044715 * x * x)
    return x * 0.5 * (1.0 + torch.tanh(inner))


def replacement_args(x):
    return (x,)


def gelu_bloom(x):
    out = torch.empty_like(x)
    lib.gelu_bloom(x, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return gelu_bloom
