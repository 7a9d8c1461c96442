"""Residual addition and layer norm: dropout (which does nothing in inference), add, layer_norm."""

import torch

from .layer_norm import add_layer_norm


def pattern(x, p, y, shape, w, b, eps):
    total = torch.nn.functional.dropout(x, p, training=False) + y
    return torch.nn.functional.layer_norm(total, shape, w, b, eps)


def replacement_args(x, p, y, shape, w, b, eps):
    return x, None, y, w, b, eps, "norm"


def replacement_func():
    return add_layer_norm
