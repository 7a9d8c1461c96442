"""The cutting of captured graphs: each run of operators becomes a graph of its own.

Its inputs are the values that enter the run (weights included). Its outputs are the values that are used outside it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from pytest_passbench.core.grouping import reached
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.clean import is_inplace, writes_inside
from pytest_passbench.suite.opnames import yields_tuple

MODEL_NAME = "passbench_name"
"""The key in a node's ``meta`` of the name that its value has in the model, if the node's name differs."""


@dataclass(frozen=True)
class GraphPiece:
    """A standalone graph, and its inputs in placeholder order, under their names in the captured graph."""

    module: fx.GraphModule
    inputs: tuple[TensorSpec, ...]


def calls(graph: fx.Graph) -> list[fx.Node]:
    """Return the graph's operators in order, without inputs, attributes and output."""
    return [node for node in graph.nodes if node.op in ("call_function", "call_method")]


def connected(nodes: Sequence[fx.Node]) -> bool:
    """Return True if the operators are connected by values made among them, or by a shared tuple."""
    inside = set(nodes)
    near = reached(nodes[:1], lambda node: inside.intersection((*node.all_input_nodes, *node.users)))
    return len(near) == len(inside)


def cut(nodes: Sequence[fx.Node], values: dict[str, TensorSpec]) -> GraphPiece | None:
    """Return the run as a graph of its own, or None if that is not possible.

    Values that enter or leave the run must be tensors, and no operator may write into values from outside. Items of
    a tuple that the run makes belong to it, even if the model takes them later.
    """
    nodes = with_items(nodes)
    inside = set(nodes)
    entering = list(dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside))
    leaving = [n for n in nodes if any(u not in inside for u in n.users) or not n.users]
    if any(is_inplace(n) and not writes_inside(n, inside, read_later=True) for n in nodes):
        return None
    if not leaving or any(n.name not in values for n in (*entering, *leaving)):
        return None
    graph, copies = fx.Graph(), {}
    for index, node in enumerate(entering):
        copies[node] = graph.placeholder(f"in_{index}")
    for node in nodes:
        copies[node] = new = graph.node_copy(node, copies.__getitem__)
        new.meta = {"origin": node.name}
        if is_inplace(node):  # later readers of the value that it writes into read its result, which is the same
            copies[node.args[0]] = new
    graph.output(tuple(dict.fromkeys(copies[n] for n in leaving)))
    inputs = (replace(values[n.name], original_name=readable(n.meta.get(MODEL_NAME, n.name), n.op)) for n in entering)
    return GraphPiece(fx.GraphModule(torch.nn.Module(), graph), tuple(inputs))


def with_items(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """Return the run with every item of the tuples that it makes; the missing ones stand behind their tuple."""
    inside, items = set(nodes), list[fx.Node]()
    for node in nodes:
        items.append(node)
        if yields_tuple(node):
            items += [user for user in node.users if user not in inside and user.target is operator.getitem]
    return items


def readable(name: str, op: str) -> str:
    """Return the model's name of a value: a weight's dotted name, or the name of the operator that made it."""
    if op != "placeholder":
        return name
    parts = name.lower().strip("_").split("modules_")
    dotted = ".".join(part.strip("_") for part in parts[1:]).replace("parameters_", "").replace("buffers_", "")
    return dotted[-60:] or name
