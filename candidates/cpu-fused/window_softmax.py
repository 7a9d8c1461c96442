"""Swin's window attention: add, view, softmax. The view splits the first dimension, so rows stay rows."""

import torch

from .softmax import masked


def pattern(x, mask, sizes):
    return torch.nn.functional.softmax((x + mask).view(sizes), dim=-1)


def replacement_args(x, mask, sizes):
    return x, mask, sizes


def window_softmax(x, mask, sizes):
    if sizes[-1] != x.shape[-1]:
        raise ValueError(f"window_softmax: a view of {tuple(x.shape)} as {tuple(sizes)} cuts rows")
    return masked(1.0, None, x, mask, sizes=sizes)


def replacement_func():
    return window_softmax
