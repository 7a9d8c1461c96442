"""Residual addition and layer norm in one sweep: add, layer_norm. The sum is a second output."""

import torch

from .layer_norm import add_layer_norm


def pattern(x, y, shape, w, b, eps):
    total = x + y
    return total, torch.nn.functional.layer_norm(total, shape, w, b, eps)


def replacement_args(x, y, shape, w, b, eps):
    return x, None, y, w, b, eps, "both"


def replacement_func():
    return add_layer_norm
