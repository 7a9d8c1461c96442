"""Attention weights without a mask: mul, softmax."""

import torch

from .softmax import scaled_softmax


def pattern(scores, scale):
    return torch.nn.functional.softmax(scores * scale, dim=-1)


def replacement_args(scores, scale):
    return scores, scale


def replacement_func():
    return scaled_softmax
