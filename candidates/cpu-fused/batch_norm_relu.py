"""Inference batch norm and its activation: batch_norm, relu."""

import torch

from .batch_norm import batch_norm


def pattern(x, mean, var, w, b, momentum, eps):
    normed = torch.nn.functional.batch_norm(x, mean, var, w, b, False, momentum, eps)
    return torch.nn.functional.relu(normed)


def replacement_args(x, mean, var, w, b, momentum, eps):
    return x, mean, var, w, b, eps, "relu"


def replacement_func():
    return batch_norm
