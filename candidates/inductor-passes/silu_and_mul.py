"""The gate of a llama-style MLP, as a pass of TorchInductor's: of two tensors, and of the halves of one."""

import torch
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

from . import kernels

patterns = PatternMatcherPass(pass_name="silu_and_mul")


def of_two(gate, up):
    return torch.nn.functional.silu(gate) * up


def of_halves(x):
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def replace_halves(x):
    d = x.shape[-1] // 2
    return kernels.silu_and_mul(x[..., :d], x[..., d:])


for dtype in (torch.float32, torch.bfloat16, torch.float16):
    rows = torch.empty(5, 16, dtype=dtype)
    register_replacement(of_halves, replace_halves, [rows], fwd_only, patterns)
    register_replacement(of_two, kernels.silu_and_mul, [rows, rows.clone()], fwd_only, patterns)
