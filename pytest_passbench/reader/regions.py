"""The regions of a graph that a pass supports, by torch's own partitioner."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.plans.regions import MAX_REGIONS, graph_module
from pytest_passbench.reader.importing import AnyLoaded, LoadedRegionPass
from pytest_passbench.suite.batching import is_batching


def _answer(supported: Callable[..., Any], node: Node) -> bool:
    """Return True if a pass supports a node. The pass is not asked about a call that data cannot state."""
    if node.op not in ("call_function", "call_method") or node.target is opaque_call or is_batching(node):
        return False
    answer = supported(node)
    if not isinstance(answer, bool):
        raise TypeError(f"supported returned a {type(answer).__name__} for {node.name}, not a bool")
    return answer


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta["val"], torch.Tensor)


def _index(_value: Any, _place: Any) -> None:
    """Stand for an index of a tensor: the partitioner takes each ``getitem`` for an item of a tuple."""


def regions(item: AnyLoaded, text: str) -> list[list[str]]:
    """Return the regions of a graph that a region pass supports, the largest first, as names of nodes.

    A region is as large as possible without a cycle between regions. Passes on what ``supported`` raises.
    """
    if not isinstance(item, LoadedRegionPass):
        raise TypeError(f"{item.name} is no region pass")
    module = graph_module(text)
    place = {node: number for number, node in enumerate(module.graph.nodes)}
    with torch.no_grad():
        answers = {node: _answer(item.supported, node) for node in place}
        indices = [node for node in place if node.target is operator.getitem and _is_tensor(node.args[0])]
        for node in indices:
            node.target = _index
        support = create_op_support(lambda _modules, node: answers[node])
        partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
        parts = [sorted(part.nodes, key=place.__getitem__) for part in partitioner.propose_partitions()]
        for node in indices:
            node.target = operator.getitem
    largest = sorted(parts, key=lambda nodes: (-len(nodes), place[nodes[0]]))[:MAX_REGIONS]
    return [[node.name for node in nodes] for nodes in largest]
