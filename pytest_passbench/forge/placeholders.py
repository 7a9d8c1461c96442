"""Placeholders for values that a task file cannot hold: constants of the module, and calls without an allowed
spelling.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.capture import Captured
from pytest_passbench.forge.clean import literals
from pytest_passbench.suite.printing import to_source


def lift(captured: Captured) -> None:
    """Turn such values of ``captured`` into placeholders, in place. They keep their recorded statistics."""
    graph = captured.module.graph
    for node in list(graph.nodes):
        if _unspellable(node):
            items = [user for user in node.users if user.op == "call_function" and user.target.__name__ == "getitem"]
            for value in (node, *items):  # if the node yields a tuple, its items are the tensors
                _replace(graph, value, captured)
    for node in reversed(list(graph.nodes)):
        if not node.users and _unspellable(node):
            graph.erase_node(node)


def _unspellable(node: fx.Node) -> bool:
    """Return True if the printer cannot write this node. Calls of the same form are tried once."""
    if node.op not in ("call_function", "call_method"):
        return node.op in ("get_attr", "call_module")
    key = (node.op, node.target, tuple(type(a) for a in literals(node)))
    if key not in _CACHE:
        _CACHE[key] = _prints(node)
    return not _CACHE[key]


_CACHE: dict[Any, bool] = {}


def _prints(node: fx.Node) -> bool:
    graph = fx.Graph()
    inputs = {other: graph.placeholder(f"x_{i}") for i, other in enumerate(node.all_input_nodes)}
    graph.output((graph.node_copy(node, inputs.__getitem__),))
    try:
        to_source(fx.GraphModule(torch.nn.Module(), graph))
    except UserError:
        return False
    return True


def _replace(graph: fx.Graph, node: fx.Node, captured: Captured) -> None:
    if node.name not in captured.values or not node.users:
        return
    with graph.inserting_before(next(iter(graph.nodes))):
        placeholder = graph.placeholder(f"{node.name}_value")
    captured.values[placeholder.name] = captured.values[node.name]
    node.replace_all_uses_with(placeholder)
