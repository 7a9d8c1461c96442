"""BLOOM's gelu, written out: mul, mul, mul, mul, add, mul, tanh, add, mul."""

import torch

from .elementwise import fused


def pattern(x):
    inner = 0.79788456 * x * (1 + 0.044715 * x * x)
    return x * 0.5 * (1.0 + torch.tanh(inner))


def replacement_args(x):
    return (x,)


gelu_bloom = fused(
    """
    vec inner = R(R(0.79788456f * a) * R(1 + R(R(0.044715f * a) * a)));
    return 0.5f * a * R(1 + R(tanh(inner)));
    """,
    1,
)


def replacement_func():
    return gelu_bloom
