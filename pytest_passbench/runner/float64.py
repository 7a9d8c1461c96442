"""The subgraph in double precision. Its outputs show the errors of eager and of the candidate."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = ("float", "half", "bfloat16")


def in_float64(module: GraphModule, sample: list[torch.Tensor]) -> GraphModule:
    """Change ``module`` so that it computes in float64, and return it.

    It widens its floating-point inputs (``sample`` has their dtypes) and all casts to a narrower type.
    """
    nodes = list(module.graph.nodes)
    for node in nodes:
        node.args, node.kwargs = map_aggregate(node.args, _widen), map_aggregate(node.kwargs, _widen)
        if node.op == "call_method" and node.target in _CASTS:
            node.target = "double"
    places = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(places, sample, strict=True):
        if value.dtype in _NARROW:
            _widen_input(module, node)
    module.recompile()
    return module


def _widen_input(module: GraphModule, place: Node) -> None:
    with module.graph.inserting_after(place):
        wide = module.graph.call_method("double", (place,))
    place.replace_all_uses_with(wide, delete_user_cb=lambda user: user is not wide)


def _widen(value: Any) -> Any:
    if isinstance(value, Node):
        return value
    return torch.float64 if value in _NARROW else value
