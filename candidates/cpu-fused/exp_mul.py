"""Mamba's decay: mul, exp, where each factor is broadcast along another dimension."""

import torch

from .elementwise import fused


def pattern(a, dt):
    return torch.exp(a * dt)


def replacement_args(a, dt):
    return a, dt


exp_mul = fused("return exp(R(a * b));", 2)


def replacement_func():
    return exp_mul
