"""The gate of a llama-style MLP: silu, mul."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* gate, const T* up, T* out, int64_t n) {
  pb::map(n, out, [](vec a, vec b) { return pb::round<T>(pb::silu(a)) * b; }, gate, up);
}
extern "C" void silu_mul(pb::in gate, pb::in up, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(gate, up, out, n); });
}
template <class T> void scaled(const T* gate, float factor, T* out, int64_t n) {
  pb::map(n, out, [=](vec a) { return pb::round<T>(pb::silu(a)) * factor; }, gate);
}
extern "C" void silu_scaled(pb::in gate, float factor, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { scaled<decltype(t)>(gate, factor, out, n); });
}
""")


def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return gate, up


def silu_mul(gate, up):
    if not isinstance(up, torch.Tensor):
        out = torch.empty_like(gate)
        lib.silu_scaled(gate, up, out, gate.numel(), gate.dtype)
        return out
    require_one_dtype("silu_mul", gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"silu_mul: no kernel for shapes {tuple(gate.shape)} and {tuple(up.shape)}")
    out = torch.empty_like(gate)
    lib.silu_mul(gate, up, out, gate.numel(), gate.dtype)
    return out


def replacement_func():
    return silu_mul
