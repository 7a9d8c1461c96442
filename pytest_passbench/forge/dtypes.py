"""The conversion of a piece to another dtype, as the same model in that dtype would run it.

The bfloat16 capture shows which inputs become bfloat16, which stay float32 (position tables, running
statistics), and which dtype literals follow. float16 is treated as bfloat16 is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

DTYPES = ("float32", "bfloat16", "float16")
FLOATS = {"float32", "float64"}


def lower_graph(module: fx.GraphModule, follows: frozenset[str], dtype: str) -> fx.GraphModule:
    """Return a copy of ``module`` in which the literals of the operators in ``follows`` are those of ``dtype``."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], copies.__getitem__))
            continue
        copies[node] = new = graph.node_copy(node, copies.__getitem__)
        new.meta = dict(node.meta)
        if node.meta.get("origin") in follows:
            new.args = fx.node.map_aggregate(new.args, lambda a: lower_literal(a, dtype))
            new.kwargs = fx.node.map_aggregate(new.kwargs, lambda a: lower_literal(a, dtype))
    return fx.GraphModule(torch.nn.Module(), graph)


def lower_literal(value: Any, dtype: str) -> Any:
    """Return ``torch.float32``, its least and its greatest number as those of ``dtype``, and others as they are."""
    if value is torch.float32:
        return getattr(torch, dtype)
    if isinstance(value, float) and abs(value) == torch.finfo(torch.float32).max:
        return math.copysign(torch.finfo(getattr(torch, dtype)).max, value)
    return value


def input_dtype(recorded: str, low: str | None, dtype: str) -> str:
    """Return the dtype, in a piece of ``dtype``, of an input that was recorded as ``recorded``.

    ``low`` is its dtype in the bfloat16 model, or None if unknown.
    """
    if recorded not in FLOATS or dtype == "float32":
        return recorded
    if low is None or low == "bfloat16":
        return dtype
    return low
