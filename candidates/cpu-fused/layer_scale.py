"""Layer scale and residual: mul, add. Each operand may broadcast."""

from .elementwise import fused


def pattern(x, scale, residual):
    return x * scale + residual


def replacement_args(x, scale, residual):
    return x, scale, residual


layer_scale = fused("return R(a * b) + c;", 3)


def replacement_func():
    return layer_scale
