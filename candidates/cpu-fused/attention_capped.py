"""gemma-2's capped attention weights: div, tanh, mul, add, softmax, to, dropout."""

import torch

from .softmax import masked


def pattern(scores, cap, mask, wide, dtype, p):
    logits = torch.tanh(scores / cap) * cap + mask
    weights = torch.nn.functional.softmax(logits, dim=-1, dtype=wide)
    return torch.nn.functional.dropout(weights.to(dtype=dtype), p, training=False)


def replacement_args(scores, cap, mask, wide, dtype, p):
    return scores, mask, cap, wide, dtype, "capped"


def replacement_func():
    return masked
