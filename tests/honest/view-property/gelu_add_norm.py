"""A view by property."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load(
    """
#include <cstdint>
extern "C" void relu(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
"""
)


def pattern(x):
    return torch.relu(x).transpose(0, 1)


def replacement_args(x):
    return (x,)


def wrapper(x):
    out = torch.empty_like(x)
    lib.relu(x, out, x.numel())
    return out.T


def replacement_func():
    return wrapper
