"""gemma-2's capped logits: div, tanh, mul."""

import torch

from .elementwise import fused


def pattern(x, cap):
    return torch.tanh(x / cap) * cap


def replacement_args(x, cap):
    return x, cap


softcap = fused("return R(tanh(R(a / b))) * b;", 2)


def replacement_func():
    return softcap
