"""Regions of a graph that the generator has kernels for. Eager runs the calls between them.

A node carries ``meta["val"]``: its value, with tensors on the meta device. Those share memory if the values do.
A region pass consists of :func:`supported` and a wrapper, :func:`launch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from pytest_passbench.fusion.elements import UNARY
from pytest_passbench.fusion.ir import Unsupported, Value
from pytest_passbench.fusion.kernel import kernel
from pytest_passbench.fusion.products import eager_is_slow
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import trace
from pytest_passbench.plans.launch import MAX_ARGUMENTS, MAX_SOURCE_CHARACTERS
from pytest_passbench.plans.values import storage_of, tensors_in
from pytest_passbench.suite.opnames import op_name

PRODUCTS = frozenset({
    "linear", "bilinear", "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "einsum", "tensordot",
    "scaled_dot_product_attention", "multi_head_attention_forward", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "cdist",
})  # fmt: skip
"""The operators that are left to eager, as :mod:`pytest_passbench.suite.opnames` calls them, but for those below."""
IN_HALVES = frozenset({
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "conv1d", "conv2d", "conv3d",
})  # fmt: skip
"""Products that have kernels for half precision, for machines on which eager's are slow."""
LANE_BY_LANE = frozenset(name for name, text in UNARY.items() if text.startswith("each("))
"""Operators that a fused kernel computes one element at a time, while eager's kernels use vector registers."""
LANE_BY_LANE_COST = 8
"""The cost of one such operator, in calls of eager. If those of a region cost more than all its calls, fusing is
slower: two of nine made a region 0.36 times as fast as eager, one of 28 made no difference (halves, AMD EPYC)."""


def _is_shared(node: Node) -> bool:
    """Return True if a write in place to a node's value would show elsewhere: in an input, or in a later use."""
    memory = _memory(node)
    if not any(_memory(value) & memory for value in node.all_input_nodes):
        return False
    nodes = list(node.graph.nodes)
    earlier = [other for other in nodes[: nodes.index(node)] if _memory(other) & memory]
    later = set(nodes[nodes.index(node) + 1 :])
    return any(other.op == "placeholder" or later.intersection(other.users) for other in earlier)


def _memory(node: Node) -> set[int]:
    return set(map(storage_of, tensors_in(node.meta.get("val"))))


def reason(node: Node) -> str:
    """Return why the generator has no kernel for a node's call, or nothing if it has one."""
    if node.op not in ("call_function", "call_method"):
        return f"a {node.op}"
    if not node.all_input_nodes:
        return "a call on no tensor"
    leaves = pytree.tree_leaves(node.meta["val"])
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return "a result that is not a tensor"
    if op_name(node) in PRODUCTS and not (op_name(node) in IN_HALVES and eager_is_slow(leaves[0].dtype)):
        return f"{op_name(node)} stays eager's"
    inputs = list(node.all_input_nodes)
    try:
        recorded = trace(_call(node, inputs), [value.meta["val"] for value in inputs], overwrite=not _is_shared(node))
        schedule(recorded)
    except Unsupported as cause:
        return str(cause)
    return "bilinear resizing is faster in eager" if any(map(_enlarges, recorded.results)) else ""


def _enlarges(result: Value) -> bool:
    """Return True for a bilinear resizing whose result has more than half as many elements as the image.

    Eager is faster then: it looks up each row and each column once, a fused kernel does so for each element. For a
    smaller result a kernel computes few elements (figures: benchmarks/LOG.md).
    """
    call = result.buffer.maker
    if call is None or call.name != "upsample_bilinear2d":
        return False
    image: Value = call.arguments["self"]
    return 2 * prod(result.sizes) > prod(image.sizes)


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


def launch(region: GraphModule, *values: Any) -> Any:
    """Return a region's results for tensors, by one kernel.

    Raises Unsupported if there is none, or if it would be slower than eager.
    """
    calls = [op_name(node) for node in region.graph.nodes if node.op.startswith("call")]
    slow = [name for name in calls if name in LANE_BY_LANE]
    if LANE_BY_LANE_COST * len(slow) > len(calls):
        raise Unsupported(f"{slow[0]} is faster in eager")
    fused = kernel(region, values, "region", overwrite=True)
    if not fused.arguments:
        raise Unsupported("nothing to compute")
    if len(fused.arguments) + len(fused.sizes) > MAX_ARGUMENTS or len(fused.source) > MAX_SOURCE_CHARACTERS:
        raise Unsupported(f"a kernel of {len(fused.arguments)} buffers and {len(fused.source)} characters")
    return fused(*values)
