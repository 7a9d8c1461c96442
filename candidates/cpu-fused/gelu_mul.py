"""The gate of a gemma-style MLP: gelu (tanh form), mul."""

import torch

from .elementwise import fused


def pattern(gate, up):
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def replacement_args(gate, up):
    return gate, up


gelu_mul = fused("return R(gelu_tanh(a)) * b;", 2)


def replacement_func():
    return gelu_mul
