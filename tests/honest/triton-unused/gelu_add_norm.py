"""A file that no pass imports names Triton."""

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load(
    """
#include <cmath>
#include <cstdint>
static float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }
extern "C" void gelu_add_norm(const float* x, const float* y, const float* w, const float* b, float* out,
                              int64_t rows, int64_t d) {
  for (int64_t r = 0; r < rows; ++r, x += d, y += d, out += d) {
    double mean = 0, var = 0;
    for (int64_t i = 0; i < d; ++i) mean += out[i] = gelu(x[i]) + y[i];
    mean /= d;
    for (int64_t i = 0; i < d; ++i) var += (out[i] - mean) * (out[i] - mean);
    const float scale = 1 / std::sqrt(float(var / d) + 1e-5f);
    for (int64_t i = 0; i < d; ++i) out[i] = (out[i] - float(mean)) * scale * w[i] + b[i];
  }
}
"""
)

def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


def compute(x, y, w, b):
    out = torch.empty_like(x)
    lib.gelu_add_norm(x, y, w, b, out, x.shape[0], x.shape[1])
    return out


def wrapper(x, y, w, b):
    return compute(x, y, w, b)


def replacement_func():
    return wrapper
