"""Residual addition and RMS norm, as a pass of TorchInductor's: one pattern for each dtype and epsilon."""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

from .kernels import fused_add_rms_norm


class FusedAddRMSNorm(CustomGraphPass):
    """Put one kernel for the sum and its norm into a graph."""

    def __init__(self):
        self.patterns = PatternMatcherPass(pass_name="fused_add_rms_norm")
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for eps in (1e-5, 1e-6):
                self.register(dtype, eps)

    def register(self, dtype, eps):
        def pattern(x, residual, weight):
            total = x + residual
            wide = total.to(torch.float32)
            normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
            return total, weight * normed.to(dtype)

        def replacement(x, residual, weight):
            return fused_add_rms_norm(x, residual, weight, eps)

        rows = torch.empty(2, 5, 16, dtype=dtype)
        inputs = [rows, torch.empty_like(rows), torch.empty(16, dtype=dtype)]
        register_replacement(pattern, replacement, inputs, fwd_only, self.patterns)

    def __call__(self, graph):
        self.patterns.apply(graph)

    def uuid(self):
        return "fused_add_rms_norm"


fused_add_rms_norm_pass = FusedAddRMSNorm()
