"""Residual addition and layer norm where the sum is used again: add, layer_norm, with two outputs."""

import torch

from .layer_norm import add_layer_norm


def pattern(x, y, shape, w, b, eps):
    total = x + y
    return total, torch.nn.functional.layer_norm(total, shape, w, b, eps)


def replacement_args(x, y, shape, w, b, eps):
    return x, y, w, b, eps, "both"


def replacement_func():
    return add_layer_norm
