"""Formulas of operators that compute each element by itself: how C++ and Triton write them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Formula:
    """A function of ``x``. ``triton`` is empty if only C++ has it; ``whole``: whole numbers have it too."""

    cpp: str
    triton: str = ""
    whole: bool = False


FORMULAS = {
    "relu": Formula("x < 0 ? 0 : x", "tl.where(x < 0, 0.0, x)", whole=True),
    "neg": Formula("-x", "-x", whole=True),
    "abs": Formula("std::fabs(x)", "tl.abs(x)"),
    "sqrt": Formula("std::sqrt(x)", "tl.sqrt(x)"),
    "rsqrt": Formula("1 / std::sqrt(x)", "1.0 / tl.sqrt(x)"),
    "reciprocal": Formula("1 / x", "1.0 / x"),
    "exp": Formula("float(std::exp(double(x)))", "tl.exp(x)"),
    "log": Formula("float(std::log(double(x)))", "tl.log(x)"),
    "log1p": Formula("float(std::log1p(double(x)))"),
    "expm1": Formula("float(std::expm1(double(x)))"),
    "erf": Formula("float(std::erf(double(x)))", "tl.erf(x)"),
    "sin": Formula("float(std::sin(double(x)))", "tl.sin(x)"),
    "cos": Formula("float(std::cos(double(x)))", "tl.cos(x)"),
    "tanh": Formula("float(std::tanh(double(x)))", "2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0"),
    "sigmoid": Formula("1 / (1 + std::exp(-x))", "1.0 / (1.0 + tl.exp(-x))"),
    "silu": Formula("x / (1 + std::exp(-x))", "x / (1.0 + tl.exp(-x))"),
    "elu": Formula("x > 0 ? x : std::expm1(x)", "tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1.0)"),
    "relu6": Formula("std::min(std::max(x, 0.0f), 6.0f)", "tl.minimum(tl.maximum(x, 0.0), 6.0)"),
    "hardsigmoid": Formula(
        "std::min(std::max(x + 3, 0.0f), 6.0f) / 6", "tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0"
    ),
    "hardswish": Formula(
        "x * std::min(std::max(x + 3, 0.0f), 6.0f) / 6", "x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0"
    ),
}

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitwise_and": "&", "bitwise_or": "|"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
