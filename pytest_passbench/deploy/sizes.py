"""Graphs with dynamic sizes: for each set of sizes in a call, the graph with numbers in place of its symbols."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx.node import map_arg

from pytest_passbench.rewrite.meta import ARITHMETIC

MAX_SIZES = 8  # sets of sizes of a graph: passes are applied anew for each
Build = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
_ARITHMETIC = ARITHMETIC.union(filter(callable, (*vars(operator).values(), *vars(math).values())))


def for_all_sizes(graph: GraphModule, build: Build) -> Callable[..., Any]:
    """Return a graph whose inputs include sizes, as a function of inputs of any sizes.

    ``build`` returns a function for a graph with numbers in place of sizes, and for its inputs. At most
    :data:`MAX_SIZES` sets of sizes have a function of their own. Others run the graph itself.
    """
    functions: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def call(*inputs: Any) -> Any:
        key = tuple(_layout(value) for value in inputs)
        if key not in functions:
            if len(functions) >= MAX_SIZES:
                return graph.forward(*inputs)
            functions[key] = build(specialised(graph, inputs), inputs)
        return functions[key](*inputs)

    return call


def _layout(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else value


def with_numbers(value: torch.Tensor) -> bool:
    """Return True if a tensor's sizes and strides are numbers, not symbols."""
    return not any(isinstance(item, torch.SymInt) for item in (*value.shape, *value.stride()))


def specialised(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Return a copy of a graph with the numbers among its inputs, and arithmetic on them, as constants."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    numbers: dict[Any, Any] = {}
    for node, value in zip(graph.find_nodes(op="placeholder"), inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            numbers[node] = value
    for node in list(graph.nodes):
        if node.op == "placeholder":
            continue
        node.args = map_arg(node.args, lambda item: numbers.get(item, item))
        node.kwargs = map_arg(node.kwargs, lambda item: numbers.get(item, item))
        if node.op == "call_function" and not node.all_input_nodes and node.target in _ARITHMETIC:
            numbers[node] = node.target(*node.args, **node.kwargs)
    for node in reversed(list(graph.nodes)):
        if node in numbers and node.op != "placeholder":
            graph.erase_node(node)
    return GraphModule(module, graph)
