"""A helper imported relatively."""

import torch

from .helper import compute


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


def wrapper(x, y, w, b):
    return compute(x, y, w, b)


def replacement_func():
    return wrapper
