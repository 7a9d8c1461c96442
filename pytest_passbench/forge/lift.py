"""What a task file cannot hold becomes an input: constants of the module, and calls that have no allowed spelling."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.capture import Captured
from pytest_passbench.forge.clean import literals
from pytest_passbench.suite.printing import to_source


def lift(captured: Captured) -> None:
    """Turn such values of ``captured`` into placeholders, in place; their recorded statistics stay theirs."""
    graph = captured.module.graph
    for node in list(graph.nodes):
        if node.op in ("get_attr", "call_module") or (_is_call(node) and not _spelled(node)):
            for value in _tensors(node):
                _replace(graph, value, captured)
    _drop_unused(graph)


def _is_call(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method")


def _spelled(node: fx.Node) -> bool:
    """Whether the printer can write this one call."""
    key = (node.op, node.target, tuple(type(a) for a in literals(node)))
    if key not in _KNOWN:
        _KNOWN[key] = _prints(node)
    return _KNOWN[key]


_KNOWN: dict[Any, bool] = {}


def _prints(node: fx.Node) -> bool:
    graph = fx.Graph()
    inputs = {other: graph.placeholder(f"x_{i}") for i, other in enumerate(node.all_input_nodes)}
    graph.output((graph.node_copy(node, inputs.__getitem__),))
    try:
        to_source(fx.GraphModule(torch.nn.Module(), graph))
    except UserError:
        return False
    return True


def _tensors(node: fx.Node) -> list[fx.Node]:
    """The node itself, or the items taken from it where it yields a tuple."""
    items = [user for user in node.users if user.op == "call_function" and user.target.__name__ == "getitem"]
    return [node, *items]


def _replace(graph: fx.Graph, node: fx.Node, captured: Captured) -> None:
    if node.name not in captured.values or not node.users:
        return
    with graph.inserting_before(next(iter(graph.nodes))):
        made = graph.placeholder(f"{node.name}_value")
    captured.values[made.name] = captured.values[node.name]
    node.replace_all_uses_with(made)


def _drop_unused(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        unspellable = node.op in ("get_attr", "call_module") or (_is_call(node) and not _spelled(node))
        if not node.users and node.op != "output" and unspellable:
            graph.erase_node(node)
