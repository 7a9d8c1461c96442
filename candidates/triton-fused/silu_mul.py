"""The gate of a llama-style MLP: silu, mul. One program per block of elements."""

import torch
import triton
import triton.language as tl

from .rounding import rounded


@triton.jit
def kernel(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gate + at, mask=inside).to(tl.float32)
    u = tl.load(up + at, mask=inside).to(tl.float32)
    kind = out.dtype.element_ty
    silu = rounded(g * tl.sigmoid(g), kind)  # where eager stores it
    tl.store(out + at, rounded(silu * u, kind), mask=inside)


def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return gate, up


def silu_mul(gate, up):
    if torch.float64 in (gate.dtype, up.dtype):
        raise ValueError(f"silu_mul: no kernel for {gate.dtype} and {up.dtype}")
    if not (gate.is_contiguous() and up.is_contiguous() and gate.shape == up.shape):
        raise ValueError(f"silu_mul: no kernel for {tuple(gate.shape)} and {tuple(up.shape)} with these strides")
    out = torch.empty_like(gate)
    block = 1024 if gate.is_cuda else 1 << 16  # the interpreter pays per program, not per element
    kernel[(triton.cdiv(out.numel(), block),)](gate, up, out, out.numel(), BLOCK=block)
    return out


def replacement_func():
    return silu_mul
