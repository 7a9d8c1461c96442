"""Squeeze and excite, or a gated linear unit: sigmoid, mul. The gate has one number an element, or one a plane."""

import torch

from pytest_passbench.kernels import cpp

from .dtypes import require_one_dtype

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, const T* gate, T* out, int64_t gates, int64_t plane) {
  auto weigh = [](vec g) { return pb::round<T>(pb::sigmoid(g)); };
  if (plane == 1) return pb::map(gates, out, [=](vec a, vec g) { return a * weigh(g); }, x, gate);
  for (int64_t i = 0; i < gates; i++) {
    float g = weigh(pb::all(pb::get(gate + i)))[0];
    pb::map(plane, out + i * plane, [=](vec a) { return a * g; }, x + i * plane);
  }
}
extern "C" void sigmoid_mul(pb::in x, pb::in gate, pb::out out, int64_t gates, int64_t plane, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, gate, out, gates, plane); });
}
""")


def pattern(x, gate):
    return x * torch.sigmoid(gate)


def replacement_args(x, gate):
    return x, gate


def sigmoid_mul(x, gate):
    """x: [n, c, ...]; gate: as x, or [n, c, 1, ...]."""
    require_one_dtype("sigmoid_mul", x, gate)
    gates = gate.numel()
    by_plane = gate.dim() == x.dim() and gate.shape[:2] == x.shape[:2] and gates == x.shape[0] * x.shape[1]
    if gate.shape != x.shape and not by_plane:
        raise ValueError(f"sigmoid_mul: no kernel for shapes {tuple(x.shape)} and {tuple(gate.shape)}")
    out = torch.empty_like(x)
    lib.sigmoid_mul(x, gate, out, gates, x.numel() // gates, x.dtype)
    return out


def replacement_func():
    return sigmoid_mul
