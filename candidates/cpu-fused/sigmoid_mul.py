"""Squeeze and excite, or a gated linear unit: sigmoid, mul."""

import torch

from pytest_passbench.kernels import cpp

from .elementwise import fused

lib = cpp.load("""
#include "passbench.h"
template <class T> void run(const T* x, const T* gate, T* out, int64_t planes, int64_t plane) {
  for (int64_t i = 0; i < planes; i++) {
    float g = pb::round<T>(pb::sigmoid(pb::all(pb::get(gate + i))))[0];
    pb::map(plane, out + i * plane, [=](pb::vec a) { return a * g; }, x + i * plane);
  }
}
extern "C" void excite(pb::in x, pb::in gate, pb::out out, int64_t planes, int64_t plane, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, gate, out, planes, plane); });
}
""")
gated = fused("return a * R(sigmoid(b));", 2)


def pattern(x, gate):
    return x * torch.sigmoid(gate)


def replacement_args(x, gate):
    return x, gate


def sigmoid_mul(x, gate):
    """x: [n, c, ...]; gate: [n, c, 1, ...], one number a plane, or anything that broadcasts."""
    planes = gate.numel()
    if gate.shape[:2] != x.shape[:2] or planes != x.shape[0] * x.shape[1] or planes == x.numel():
        return gated(x, gate)
    out = torch.empty_like(x)
    lib.excite(x, gate, out, planes, x.numel() // planes, x.dtype)
    return out


def replacement_func():
    return sigmoid_mul
