"""RWKV's and Primer's activation: relu, square."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, T* out, int64_t n) {
  pb::map(n, out, [](vec a) { return pb::relu(a) * pb::relu(a); }, x);
}
extern "C" void relu_squared(pb::in x, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, out, n); });
}
""")


def pattern(x):
    return torch.square(torch.relu(x))


def replacement_args(x):
    return (x,)


def relu_squared(x):
    out = torch.empty_like(x)
    lib.relu_squared(x, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return relu_squared
