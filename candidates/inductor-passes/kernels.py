"""The kernels that the passes put in: a norm of rows, with or without a residual added, and a gate."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void norm(const T* x, const T* residual, const T* w, T* sum, T* out, int64_t rows, int64_t d,
                             float eps) {
  pb::buffer values(d), squares(d);
  float *v = values.data, *q = squares.data;
  for (int64_t r = 0; r < rows; r++, x += d, out += d) {
    if (residual) {
      pb::map(d, v, [](vec a, vec b) { return pb::round<T>(a + b); }, x, residual + r * d);
      pb::map(d, sum + r * d, [](vec a) { return a; }, v);
    } else {
      pb::map(d, v, [](vec a) { return a; }, x);
    }
    pb::map(d, q, [](vec a) { return a * a; }, v);
    const float scale = 1 / __builtin_sqrtf(pb::sum_as_torch(d, q) / d + eps);
    pb::map(d, out, [=](vec a, vec b) { return pb::round<T>(a * scale) * b; }, v, w);
  }
}
extern "C" void rms_norm(pb::in x, pb::in residual, pb::in w, pb::out sum, pb::out out, int64_t rows, int64_t d,
                         double eps, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { norm<decltype(t)>(x, residual, w, sum, out, rows, d, eps); });
}
template <class T> void gate(const T* x, const T* y, T* out, int64_t rows, int64_t d, int64_t step) {
  for (int64_t r = 0; r < rows; r++, x += step, y += step, out += d)
    pb::map(d, out, [](vec a, vec b) { return pb::round<T>(pb::silu(a)) * b; }, x, y);
}
extern "C" void silu_and_mul(pb::in x, pb::in y, pb::out out, int64_t rows, int64_t d, int64_t step,
                             pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { gate<decltype(t)>(x, y, out, rows, d, step); });
}
""")


def _of_one_dtype(*tensors):
    """Return the tensors as they are, or all in float32 if they differ: TorchInductor's graphs promote unseen."""
    if len({tensor.dtype for tensor in tensors}) == 1:
        return tensors
    return tuple(tensor.to(torch.float32) for tensor in tensors)


def _check_rows(x, residual, w):
    """Raise ValueError unless two tensors are of one shape, and ``w`` has a number for each place in a row."""
    if x.shape != residual.shape or w.shape != x.shape[-1:]:
        shapes = f"{tuple(x.shape)}, {tuple(residual.shape)} and {tuple(w.shape)}"
        raise ValueError(f"rms_norm: no kernel for shapes {shapes}")


def rms_norm(x, w, eps):
    """Return the norm of the rows of ``x``, times ``w``."""
    _check_rows(x, x, w)
    x, w = _of_one_dtype(x, w)
    out, d = torch.empty_like(x), w.numel()
    lib.rms_norm(x, None, w, None, out, x.numel() // d, d, eps, x.dtype)
    return out


def fused_add_rms_norm(x, residual, w, eps):
    """Return the sum of ``x`` and ``residual``, and the norm of its rows, times ``w``."""
    _check_rows(x, residual, w)
    x, residual, w = _of_one_dtype(x, residual, w)
    total, out, d = torch.empty_like(x), torch.empty_like(x), w.numel()
    lib.rms_norm(x, residual, w, total, out, x.numel() // d, d, eps, x.dtype)
    return total, out


def silu_and_mul(gate, up):
    """Return silu of ``gate``, times ``up``, for two tensors or for the halves of the rows of one."""
    d, form = gate.shape[-1], (gate.dtype, gate.shape, gate.stride())
    step = gate.view(-1, d).stride(0)  # RuntimeError, if rows are not equally far apart
    if form != (up.dtype, up.shape, up.stride()) or gate.stride(-1) != 1:
        raise ValueError(f"silu_and_mul: no kernel for {form} and {up.dtype, up.shape, up.stride()}")
    out = torch.empty(gate.shape, dtype=gate.dtype)
    lib.silu_and_mul(gate.data_ptr(), up.data_ptr(), out, gate.numel() // d, d, step, gate.dtype)
    return out
