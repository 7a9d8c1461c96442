"""Attention weights with a mask: mul, add, softmax, to, dropout (which does nothing in inference)."""

import torch

from .softmax import masked


def pattern(scores, scale, mask, wide, dtype, p):
    weights = torch.nn.functional.softmax(scores * scale + mask, dim=-1, dtype=wide)
    return torch.nn.functional.dropout(weights.to(dtype=dtype), p, training=False)


def replacement_args(scores, scale, mask, wide, dtype, p):
    return scores, mask, scale, wide, dtype, "scaled"


def replacement_func():
    return masked
