"""Calls whose roundings show in what comes behind them: eager adds in another order than the generator's kernels.

The names are those of :mod:`pytest_passbench.suite.opnames`.
"""

from __future__ import annotations

from collections.abc import Set

import torch

from pytest_passbench.fusion.ir import HALVES

PRODUCTS = frozenset({
    "linear", "bilinear", "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "einsum", "tensordot",
    "scaled_dot_product_attention", "multi_head_attention_forward", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "cdist",
})  # fmt: skip
"""The operators that stay eager's. On meta tensors most would import torch's compiler, which takes seconds."""
NORMS = frozenset({"layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "_weight_norm"})
IN_ORDER = frozenset({"rms_norm", "_weight_norm"})
"""The norms of which a C++ kernel adds the squares in the order of eager."""
HALVES_IN_ORDER = frozenset({"layer_norm"})
"""The norms that a C++ kernel computes in the order of eager in half precision, and near enough in float32."""
REORDERED = (NORMS - IN_ORDER) | {"softmax"}
"""The operators whose sums a C++ kernel adds in another order than eager."""
CANCELLING = PRODUCTS | NORMS | {
    "gelu", "add", "sub", "batch_norm", "lerp", "mse_loss", "interpolate", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean", "sum", "cumsum",
}  # fmt: skip
"""The operators whose terms may cancel, so that an error of an operand becomes a large one of the result."""
DOUBLING = frozenset({"mul", "div", "silu", "exp", "pow"})
"""The operators that make two units in the last place of one. In float16, t = -5 allows one."""


def reorders(op: str, dtype: torch.dtype, triton: bool) -> bool:
    """Return True if a kernel adds the terms of a call with a result of this dtype in another order than eager."""
    if triton:
        return op in REORDERED | NORMS | {"sum", "mean"}
    return op in REORDERED and not (op in HALVES_IN_ORDER and dtype in HALVES)


def cancelling(dtypes: Set[torch.dtype | None]) -> frozenset[str]:
    """Return the operators behind which a rounding of a value shows, by the dtypes that the graph has in it."""
    return CANCELLING | DOUBLING if torch.float16 in dtypes else CANCELLING
