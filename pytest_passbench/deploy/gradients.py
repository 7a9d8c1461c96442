"""Graphs whose values carry gradients or tangents, which a kernel does not: they stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx import GraphModule, Node

# torch.func's levels, under which a tensor has no memory of its own.
_LEVELS = frozenset({"_grad_increment_nesting", "_jvp_increment_nesting", "_enter_dual_level", "_make_dual"})
_SWITCHES = frozenset({torch._C._set_grad_enabled, torch.set_grad_enabled})


def needs_gradients(graph: GraphModule, inputs: Sequence[Any]) -> bool:
    """Return True if a graph's call on these inputs may record gradients, or computes derivatives itself.

    It does if gradients are on, or a call of the graph switches them on, and a tensor needs one; if it is called
    within a level of forward-mode differentiation; and if it has a level of torch.func or a call of torch.autograd.
    """
    nodes = list(_calls(graph))
    if forward_ad._current_level >= 0 or any(_differentiates(node) for node in nodes):
        return True
    switched_on = any(node.target in _SWITCHES and node.args[:1] != (False,) for node in nodes)
    tensors = (*inputs, *graph.parameters(), *graph.buffers())
    leaves = any(map(_makes_leaf, nodes))
    requires_grad = leaves or any(getattr(value, "requires_grad", False) for value in tensors)
    return requires_grad and (switched_on or torch.is_grad_enabled())


def _calls(graph: GraphModule) -> Iterator[Node]:
    """Yield the calls in a graph and in those within it."""
    for module in graph.modules():
        if isinstance(module, GraphModule):
            yield from (node for node in module.graph.nodes if node.op in ("call_function", "call_method"))


def _differentiates(node: Node) -> bool:
    name, module = getattr(node.target, "__name__", ""), str(getattr(node.target, "__module__", ""))
    return name in _LEVELS or (module == "torch.autograd" and name in ("grad", "backward"))


def _makes_leaf(node: Node) -> bool:
    """Return True if a call makes a tensor that needs a gradient."""
    sets = node.target == "requires_grad_" and False not in (*node.args[1:2], *node.kwargs.values())
    return sets or bool(node.kwargs.get("requires_grad"))
