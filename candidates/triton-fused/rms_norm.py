"""llama's RMS norm: to, pow, mean, add, rsqrt, mul, to, mul. One program per row."""

import torch
import triton
import triton.language as tl

from .rounding import rounded


@triton.jit
def kernel(x, w, out, d, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < d
    a = tl.load(x + row * d + at, mask=inside, other=0).to(tl.float32)
    weight = tl.load(w + at, mask=inside).to(tl.float32)
    kind = out.dtype.element_ty
    normed = a / tl.sqrt(tl.sum(a * a, 0) / d + eps)
    tl.store(out + row * d + at, rounded(weight * rounded(normed, kind), kind), mask=inside)


def pattern(x, w, eps, dtype):
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return w * (wide * scale).to(dtype=dtype)


def replacement_args(x, w, eps, dtype):
    return x, w, eps, dtype


def rms_norm(x, w, eps, dtype):
    """x: [..., d], w: [d], both of dtype."""
    if not (x.is_contiguous() and x.dtype == w.dtype == dtype != torch.float64):
        raise ValueError(f"rms_norm: no kernel for {x.dtype} with strides {x.stride()}, {w.dtype} and {dtype}")
    if w.shape != x.shape[-1:]:
        raise ValueError(f"rms_norm: no kernel for shapes {tuple(x.shape)} and {tuple(w.shape)}")
    d = w.numel()
    out = torch.empty_like(x)
    kernel[(x.numel() // d,)](x, w, out, d, eps, BLOCK=triton.next_power_of_2(d))
    return out


def replacement_func():
    return rms_norm
