"""A kernel that casts its results itself."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load(
    """
#include <cstdint>
#include <cstring>
extern "C" void relu_to(const float* x, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = x[i] < 0 ? 0.0f : x[i];
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    out[i] = value == value ? uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : uint16_t(0x7fc0);
  }
}
"""
)


def pattern(x):
    return torch.relu(x).to(torch.bfloat16)


def replacement_args(x):
    return (x.view(-1, x.shape[1]),)


def wrapper(x):
    out = torch.empty_like(x, dtype=torch.bfloat16)
    lib.relu_to(x, out, x.numel())
    return out


def replacement_func():
    return wrapper
