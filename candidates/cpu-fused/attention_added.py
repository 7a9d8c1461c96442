"""Attention weights of scores that are scaled already: add, softmax, to, dropout."""

import torch

from .softmax import masked


def pattern(scores, mask, wide, dtype, p):
    weights = torch.nn.functional.softmax(scores + mask, dim=-1, dtype=wide)
    return torch.nn.functional.dropout(weights.to(dtype=dtype), p, training=False)


def replacement_args(scores, mask, wide, dtype, p):
    return scores, mask, 1.0, wide, dtype, "scaled"


def replacement_func():
    return masked
