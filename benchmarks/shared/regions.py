"""Graph modules with the forms of their values, and with submodules in place of regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from pytest_passbench.plans.regions import graph_module, graph_text


class _Annotator(Interpreter):
    """Runs a graph, and keeps each node's value."""

    def run_node(self, node: Node) -> Any:
        node.meta["val"] = super().run_node(node)
        return node.meta["val"]


def annotate(module: GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Run a graph on inputs, and note the form of each node's value in its ``meta["val"]``.

    Nodes after a call in place must read that call's result.
    """
    with torch.no_grad():
        _Annotator(module, garbage_collect_values=False).run(*inputs)
    forms = graph_module(graph_text(module.graph, lambda node: node.meta["val"], names=True)).graph
    for node, form in zip(module.graph.nodes, forms.nodes, strict=True):
        node.meta["val"] = form.meta.get("val")


def split(module: GraphModule, supports: Callable[[Node], bool]) -> list[Node]:
    """Put a call of a submodule in place of each region of an annotated graph, and return these calls.

    The submodules are graph modules. A region is as large as possible without a cycle between regions.
    """
    support = create_op_support(lambda _modules, node: supports(node))
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="region_")
    return [node for node in module.graph.nodes if node.op == "call_module"]
