"""Residual addition and layer norm in one sweep: add, layer_norm."""

import torch

from .layer_norm import add_layer_norm


def pattern(x, y, shape, w, b, eps):
    return torch.nn.functional.layer_norm(x + y, shape, w, b, eps)


def replacement_args(x, y, shape, w, b, eps):
    return x, None, y, w, b, eps, "norm"


def replacement_func():
    return add_layer_norm
