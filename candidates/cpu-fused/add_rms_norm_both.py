"""Residual addition and llama's RMS norm, where the sum is used again: two outputs."""

import torch

from .rms import rms_norm


def pattern(x, y, w, eps, dtype):
    total = x + y
    wide = total.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return total, w * (wide * scale).to(dtype=dtype)


def replacement_args(x, y, w, eps, dtype):
    return x, y, w, eps, 0.0, dtype, "both"


def replacement_func():
    return rms_norm
