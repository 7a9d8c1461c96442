"""Regions of a graph that the generator has kernels for. What is between them stays eager's.

A node carries ``meta["val"]``: its value, with tensors on the meta device. :func:`annotate` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils import _pytree as pytree

from pytest_passbench.fusion.ir import Unsupported
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import tensors, trace, twin

SHARED = "shared memory"
"""The key in a node's meta that is True where a write in place would show elsewhere."""


class _Annotator(Interpreter):
    """Runs a graph, and notes each value's form and memory."""

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        node.meta["val"] = pytree.tree_map_only(torch.Tensor, twin, value)
        node.meta["memory"] = frozenset(int(tensor.untyped_storage()._cdata) for tensor in tensors(value))
        return value


def annotate(module: GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Run a graph on inputs, and note the form of each node's value in its ``meta["val"]``.

    Nodes after a call in place read that call's result, as ``rewrite.inplace`` arranges it.
    """
    with torch.no_grad():
        _Annotator(module, garbage_collect_values=False).run(*inputs)
    place = {node: number for number, node in enumerate(module.graph.nodes)}
    outside = frozenset[int]().union(*(node.meta["memory"] for node in place if node.op == "placeholder"))
    for node in place:
        memory = node.meta["memory"]
        later = (
            user
            for other in place
            if place[other] < place[node] and other.meta["memory"] & memory
            for user in other.users
            if place[user] > place[node]
        )
        node.meta[SHARED] = bool(memory & outside) or any(True for _ in later)


def reason(node: Node) -> str:
    """Return why the generator has no kernel for a node's call, or nothing if it has one."""
    if node.op not in ("call_function", "call_method"):
        return f"a {node.op}"
    leaves = pytree.tree_leaves(node.meta["val"])
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return "a result that is no tensor"
    inputs = list(node.all_input_nodes)
    try:
        recorded = trace(
            _call(node, inputs), [value.meta["val"] for value in inputs], overwrite=not node.meta[SHARED]
        )
        schedule(recorded)
    except Unsupported as cause:
        return str(cause)
    return ""


def _call(node: Node, inputs: Sequence[Node]) -> Callable[..., Any]:
    """Return a node's call as a function of the values that it uses."""

    def call(*values: Any) -> Any:
        return tuple(pytree.tree_leaves(called(node, dict(zip(inputs, values, strict=True)))))

    return call


def called(node: Node, values: Mapping[Node, Any]) -> Any:
    """Return the result of a node's call, with values in place of the nodes that it uses."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def supported(node: Node) -> bool:
    """Return True if the generator has a kernel for a node's call on values as its ``meta["val"]`` says."""
    return not reason(node)


class _Support(OperatorSupportBase):
    def __init__(self, supports: Callable[[Node], bool]) -> None:
        self.supports = supports

    def is_node_supported(self, _submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return self.supports(node)


def split(module: GraphModule, supports: Callable[[Node], bool] = supported) -> list[Node]:
    """Put a call of a submodule in place of each region of an annotated graph, and return these calls.

    The submodules are graph modules. A region is as large as can be without a circle between regions.
    """
    partitioner = CapabilityBasedPartitioner(module, _Support(supports), allows_single_node_partition=True)
    partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="region_")
    return [node for node in module.graph.nodes if node.op == "call_module"]
