"""Residual addition and llama's RMS norm: add, to, pow, mean, add, rsqrt, mul, to, mul."""

import torch

from .rms import rms_norm


def pattern(x, y, w, eps, dtype):
    wide = (x + y).to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return w * (wide * scale).to(dtype=dtype)


def replacement_args(x, y, w, eps, dtype):
    return x, y, w, eps, 0.0, dtype, "norm"


def replacement_func():
    return rms_norm
