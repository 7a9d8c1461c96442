"""RMS norm, as a pass of TorchInductor's: one pattern for each dtype and epsilon."""

import torch
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

from . import kernels

patterns = PatternMatcherPass(pass_name="rms_norm")


def register(dtype, eps):
    """Register the pattern of a dtype and an epsilon."""

    def search(x, weight):
        wide = x.to(torch.float32)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return weight * normed.to(dtype)

    def replace(x, weight):
        return kernels.rms_norm(x, weight, eps)

    inputs = [torch.empty(2, 5, 16, dtype=dtype), torch.empty(16, dtype=dtype)]
    register_replacement(search, replace, inputs, fwd_only, patterns)


for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for eps in (1e-5, 1e-6):
        register(dtype, eps)
