"""The gate of a gemma-style MLP: gelu (tanh form), mul."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* gate, const T* up, T* out, int64_t n) {
  pb::map(n, out, [](vec a, vec b) { return pb::round<T>(pb::gelu_tanh(a)) * b; }, gate, up);
}
extern "C" void gelu_mul(pb::in gate, pb::in up, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(gate, up, out, n); });
}
""")


def pattern(gate, up):
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def replacement_args(gate, up):
    return gate, up


def gelu_mul(gate, up):
    require_one_dtype("gelu_mul", gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"gelu_mul: no kernel for shapes {tuple(gate.shape)} and {tuple(up.shape)}")
    out = torch.empty_like(gate)
    lib.gelu_mul(gate, up, out, gate.numel(), gate.dtype)
    return out


def replacement_func():
    return gelu_mul
