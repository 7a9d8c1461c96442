"""Calls whose roundings would show in what comes behind them, so that a first pass leaves them to eager."""

from __future__ import annotations

from collections.abc import Set

import torch
from torch.fx import Node

from pytest_passbench.scaffold.forms import GraphForm

PRODUCTS = frozenset({
    "linear", "matmul", "bmm", "mm", "baddbmm", "addmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "einsum",
    "scaled_dot_product_attention", "cdist",
})  # fmt: skip
NORMS = frozenset({"layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "_weight_norm"})
REORDERED = PRODUCTS | NORMS | {"softmax"}
"""The operators whose sums a plain kernel adds in another order than eager."""
_CANCELLING = PRODUCTS | NORMS | {
    "gelu", "add", "sub", "batch_norm", "lerp", "mse_loss", "interpolate", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean", "sum", "cumsum",
}  # fmt: skip
_CANCELLING_PRODUCTS = frozenset({"batch_norm", "interpolate"})
"""The calls behind which a product's roundings show in single precision too."""


def shows_later(form: GraphForm, node: Node, inexact: Set[str]) -> str:
    """Return why a call should be left to eager because of what comes behind it, or nothing.

    A long sum that is added in another order than eager's falls to the other side of a rounding now and then. In half
    precision this is within what t = -5 allows. It is not behind a call whose terms cancel: a sum, a product, a norm.
    ``inexact`` are the operators whose kernels add so, or round otherwise for another reason.
    """
    half, op = set(form.dtypes(node)) & {torch.float16, torch.bfloat16}, form.call(node).op
    if op not in inexact:
        return ""
    if op == "instance_norm" and half:
        return "instance_norm, whose statistics eager rounds to half precision"
    cancelling = _CANCELLING
    if any(spec.dtype == "float16" for spec in form.columns[0].inputs) or torch.float16 in half:
        # t = -5 allows one unit in the last place there, and a product makes two of it
        cancelling = cancelling | {"mul", "div", "silu", "exp", "pow"}
    front, visited = [(user, bool(half)) for user in node.users], set[tuple[Node, bool]]()
    while front:
        user, rounded = front.pop()
        if (user, rounded) in visited or user.op == "output":
            continue
        visited.add((user, rounded))
        if form.call(user).op in (cancelling if rounded else _CANCELLING_PRODUCTS if op in PRODUCTS else ()):
            return f"{op}, since its roundings would show behind {form.call(user).op}"
        rounded = rounded or bool(set(form.dtypes(user)) & {torch.float16, torch.bfloat16})
        front += [(further, rounded) for further in user.users]
    return ""
