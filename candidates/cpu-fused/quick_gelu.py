"""CLIP's gelu: mul, sigmoid, mul."""

import torch

from .elementwise import fused


def pattern(x):
    return x * torch.sigmoid(1.702 * x)


def replacement_args(x):
    return (x,)


quick_gelu = fused("return a * R(sigmoid(R(1.702f * a)));", 1)


def replacement_func():
    return quick_gelu
