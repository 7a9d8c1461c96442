"""gemma's RMS norm, whose weight is stored less one: float, pow, mean, add, rsqrt, mul, float, add, mul, type_as."""

import torch

from .rms import rms_norm


def pattern(x, w, eps):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * (1.0 + w.float())).type_as(x)


def replacement_args(x, w, eps):
    return x, None, w, eps, 1.0, x.dtype, "norm"


def replacement_func():
    return rms_norm
