"""Layer scale, residual addition and layer norm in one sweep: mul, add, layer_norm."""

import torch

from .layer_norm import add_layer_norm


def pattern(x, gamma, y, shape, w, b, eps):
    return torch.nn.functional.layer_norm(x * gamma + y, shape, w, b, eps)


def replacement_args(x, gamma, y, shape, w, b, eps):
    return x, gamma, y, w, b, eps, "norm"


def replacement_func():
    return add_layer_norm
