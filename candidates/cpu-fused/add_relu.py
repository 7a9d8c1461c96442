"""The end of a residual block: add, relu."""

import torch

from .elementwise import fused


def pattern(x, y):
    return torch.nn.functional.relu(x + y)


def replacement_args(x, y):
    return x, y


add_relu = fused("return relu(a + b);", 2)


def replacement_func():
    return add_relu
