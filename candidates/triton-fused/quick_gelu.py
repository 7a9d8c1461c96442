"""CLIP's gelu: mul, sigmoid, mul. One program per block of elements."""

import torch
import triton
import triton.language as tl

from .rounding import rounded


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kind = out.dtype.element_ty
    a = tl.load(x + at, mask=inside).to(tl.float32)
    scaled = rounded(1.702 * a, kind)  # where eager stores it, as below
    gate = rounded(tl.sigmoid(scaled), kind)
    tl.store(out + at, rounded(a * gate, kind), mask=inside)


def pattern(x):
    return x * torch.sigmoid(1.702 * x)


def replacement_args(x):
    return (x,)


def quick_gelu(x):
    if not x.is_contiguous() or x.dtype == torch.float64:
        raise ValueError(f"quick_gelu: no kernel for {x.dtype} with strides {x.stride()}")
    out = torch.empty_like(x)
    block = 1024 if x.is_cuda else 1 << 16
    kernel[(triton.cdiv(out.numel(), block),)](x, out, out.numel(), BLOCK=block)
    return out


def replacement_func():
    return quick_gelu
