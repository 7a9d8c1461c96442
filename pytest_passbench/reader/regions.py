"""The regions of a graph that a pass supports, by torch's own partitioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.plans.regions import MAX_REGIONS, graph_module
from pytest_passbench.reader.importing import AnyLoaded, LoadedRegionPass


class _PassSupport(OperatorSupportBase):
    """A pass's answers, each asked once. A call that data cannot state is not supported."""

    def __init__(self, supported: Callable[..., Any]) -> None:
        self._supported, self._answers = supported, dict[Node, bool]()

    def is_node_supported(self, _submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op not in ("call_function", "call_method") or node.target is opaque_call:
            return False
        if node not in self._answers:
            answer = self._supported(node)
            if not isinstance(answer, bool):
                raise TypeError(f"supported returned a {type(answer).__name__} for {node.name}, not a bool")
            self._answers[node] = answer
        return self._answers[node]


def regions(item: AnyLoaded, text: str) -> list[list[str]]:
    """Return the regions of a graph that a region pass supports, the largest first, as names of nodes.

    A region is as large as can be without a circle between regions. Passes on what ``supported`` raises.
    """
    if not isinstance(item, LoadedRegionPass):
        raise TypeError(f"{item.name} is no region pass")
    module = graph_module(text)
    place = {node: number for number, node in enumerate(module.graph.nodes)}
    with torch.no_grad():
        support = _PassSupport(item.supported)
        partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
        parts = [sorted(part.nodes, key=place.__getitem__) for part in partitioner.propose_partitions()]
    largest = sorted(parts, key=lambda nodes: (-len(nodes), place[nodes[0]]))[:MAX_REGIONS]
    return [[node.name for node in nodes] for nodes in largest]
