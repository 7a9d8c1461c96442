"""Residual addition and layer norm: dropout (which does nothing in inference), add, layer_norm. Two outputs."""

import torch
import triton
import triton.language as tl

from .rounding import rounded


@triton.jit
def kernel(x, y, w, b, total, out, d, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < d
    a = tl.load(x + row * d + at, mask=inside, other=0).to(tl.float32)
    c = tl.load(y + row * d + at, mask=inside, other=0).to(tl.float32)
    kind = out.dtype.element_ty
    s = rounded(a + c, kind)
    tl.store(total + row * d + at, s, mask=inside)
    mean = tl.sum(s, 0) / d
    off = tl.where(inside, s - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(off * off, 0) / d + eps)
    weight = tl.load(w + at, mask=inside).to(tl.float32)
    bias = tl.load(b + at, mask=inside).to(tl.float32)
    tl.store(out + row * d + at, rounded(off * scale * weight + bias, kind), mask=inside)


def pattern(x, p, y, shape, w, b, eps):
    total = torch.nn.functional.dropout(x, p, training=False) + y
    return total, torch.nn.functional.layer_norm(total, shape, w, b, eps)


def replacement_args(x, p, y, shape, w, b, eps):
    return x, y, w, b, eps


def add_layer_norm(x, y, w, b, eps):
    """x, y: [..., d] of one shape; w, b: [d]."""
    if torch.float64 in (x.dtype, y.dtype) or w.shape != x.shape[-1:]:
        raise ValueError(f"add_layer_norm: no kernel for {x.dtype} of {tuple(x.shape)} and weights {tuple(w.shape)}")
    if not (x.is_contiguous() and y.is_contiguous() and x.shape == y.shape):
        raise ValueError(f"add_layer_norm: no kernel for {tuple(x.shape)} and {tuple(y.shape)} with these strides")
    d = w.numel()
    total, out = torch.empty_like(x), torch.empty_like(x)
    kernel[(x.numel() // d,)](x, y, w, b, total, out, d, eps, BLOCK=triton.next_power_of_2(d))
    return total, out


def replacement_func():
    return add_layer_norm
