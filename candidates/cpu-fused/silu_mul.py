"""The gate of a llama-style MLP: silu, mul."""

import torch

from .elementwise import fused


def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return gate, up


silu_mul = fused("return R(silu(a)) * b;", 2)


def replacement_func():
    return silu_mul
