"""The cleaning of captured graphs: bookkeeping calls, dead values and constants of the module are removed.

Values that a task file cannot hold, and calls without an allowed spelling, become placeholders.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.capture import Captured
from pytest_passbench.suite.batching import CLOSE, OPEN, is_batching
from pytest_passbench.suite.printing import GraphPrinter

BOOKKEEPING = {"_log_api_usage_once", "_assert_async", "_enter_autocast", "_exit_autocast", "_set_grad_enabled",
               "set_grad_enabled", "_check", "_check_is_size", "lazy_load_decompositions"}  # fmt: skip
FUNCTIONAL = {operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
              operator.itruediv: operator.truediv, operator.iand: operator.and_,
              operator.ior: operator.or_}  # fmt: skip
INPLACE = {operator.setitem, *FUNCTIONAL}


HEAVY = {"linear", "matmul", "bmm", "__matmul__", "baddbmm", "addmm", "conv1d", "conv2d", "conv3d",
         "conv_transpose1d", "conv_transpose2d", "scaled_dot_product_attention", "einsum", "embedding",
         "fft_fftn", "_fft_c2c", "multi_head_attention_forward", "interpolate", "grid_sampler"}  # fmt: skip
"""Operators that a pass is unlikely to improve; the runs between them are the material of tasks."""


def target_name(node: fx.Node) -> str:
    """Return the bare name of the function or method that ``node`` calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def is_inplace(node: fx.Node) -> bool:
    """Return True if ``node`` writes into one of its inputs."""
    if node.op == "call_method":
        return target_name(node).endswith("_") and not target_name(node).endswith("__")
    if node.op != "call_function":
        return False
    if node.target in INPLACE or node.kwargs.get("inplace") is True or node.kwargs.get("out") is not None:
        return True
    name = target_name(node)
    return (name.endswith("_") and not name.startswith("_")) or _positional_inplace(node)


def _positional_inplace(node: fx.Node) -> bool:
    """Return True for calls such as ``relu(x, True)``: Dynamo calls the functional activations by position."""
    functional = bool(getattr(node.target, "__module__", "") == "torch.nn.functional")
    names = getattr(getattr(node.target, "__code__", None), "co_varnames", ())
    if not functional or "inplace" not in names:
        return False
    place = names.index("inplace")
    return len(node.args) > place and node.args[place] is True


def writes_inside(node: fx.Node, inside: Collection[fx.Node], read_later: bool = False) -> bool:
    """Return True if an in-place ``node`` writes only into a value of ``inside`` that nothing else reads.

    With ``read_later`` true, others may read the value after ``node``: to them it is the result of ``node``.
    """
    target = node.args[0] if node.args else None
    if not isinstance(target, fx.Node) or target not in inside or target_name(target) in VIEWS:
        return False
    if node.target is operator.setitem or node.kwargs.get("out") is not None:
        return False
    return all(user is node or (read_later and node < user) for user in target.users)


VIEWS = {"view", "reshape", "transpose", "permute", "getitem", "chunk", "split", "expand", "squeeze", "unsqueeze",
         "flatten", "narrow", "select", "unbind", "contiguous", "to", "dropout", "t", "detach", "view_as",
         "movedim", "unflatten", "swapaxes", "float", "type_as", "adaptive_avg_pool2d", "diagonal"}  # fmt: skip
"""Operators whose value may share its memory with another one."""


def edited(module: fx.GraphModule, edit: Callable[[fx.Node], None]) -> fx.GraphModule:
    """Return a copy of ``module``, after ``edit`` has changed the copy of each node but the output."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(module.graph, copies))
    for copy in copies.values():
        edit(copy)
    return fx.GraphModule(torch.nn.Module(), graph)


def functional(module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of ``module`` in which the in-place forms that :func:`writes_inside` allows are plain calls."""
    return edited(module, _make_functional)


def _make_functional(node: fx.Node) -> None:
    if not is_inplace(node):
        return
    if node.op == "call_method":
        node.target = str(node.target).rstrip("_")
    elif node.target in FUNCTIONAL:
        node.target = FUNCTIONAL[node.target]
    elif "inplace" in node.kwargs:
        node.kwargs = {**node.kwargs, "inplace": False}
    elif _positional_inplace(node):
        node.args = tuple(False if a is True else a for a in node.args)


def clean(module: fx.GraphModule) -> None:
    """Remove bookkeeping and dead calls, in place; in-place operators and levels of ``torch.vmap`` count as used."""
    graph = module.graph
    for node in reversed(list(graph.nodes)):
        if node.op in ("placeholder", "output") or node.users:
            continue
        name = target_name(node)
        if name == OPEN and target_name(node.next) == CLOSE:
            graph.erase_node(node.next)
        elif name in (OPEN, CLOSE):
            continue
        if name in BOOKKEEPING or not is_inplace(node):
            graph.erase_node(node)
    graph.lint()


def is_heavy(node: fx.Node) -> bool:
    """Return True if ``node`` is one of :data:`HEAVY`."""
    return target_name(node) in HEAVY


def sink(module: fx.GraphModule, heavy: Callable[[fx.Node], bool]) -> None:
    """Move every light operator down to its first user, in place, so that operators used together are adjacent.

    The calls around a level of ``torch.vmap`` stay. ``silu(gate(x)) * up(x)`` is captured as silu, linear, mul. After
    sinking, silu stands before mul. A graph stays as it is if an operator writes into a value that another one reads.
    """
    graph = module.graph
    nodes = list(graph.nodes)
    moved = set(nodes)
    if any(is_inplace(node) and not writes_inside(node, moved) for node in nodes):
        return
    for node in reversed(nodes):
        if node.op not in ("call_function", "call_method") or heavy(node) or not node.users or is_batching(node):
            continue
        position = {other: i for i, other in enumerate(graph.nodes)}
        first = min(node.users, key=position.__getitem__)
        first.prepend(node)
    graph.lint()


def literals(node: fx.Node) -> list[Any]:
    """Return every literal among the arguments of ``node``, in order."""
    values: list[Any] = []
    fx.node.map_aggregate(
        (node.args, node.kwargs), lambda a: values.append(a) if not isinstance(a, fx.Node) else None
    )
    return values


def is_low_literal(literal: Any, other: Any) -> bool:
    """Return True if ``literal`` is float32 or one of its extremes, and ``other`` is bfloat16 or the same extreme."""
    if literal is torch.float32 and other is torch.bfloat16:
        return True
    high, low = torch.finfo(torch.float32), torch.finfo(torch.bfloat16)
    return bool((literal, other) in ((high.min, low.min), (high.max, low.max)))


def lift(captured: Captured) -> None:
    """Turn values that the printer cannot write into placeholders, in place. They keep their recorded statistics."""
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
    """Return True if the printer cannot write this node. Calls with the same types of literals are tried once."""
    if node.op not in ("call_function", "call_method"):
        return node.op in ("get_attr", "call_module")
    key = (node.op, node.target, tuple(type(a) for a in literals(node)))
    if key not in _CACHE:
        _CACHE[key] = _prints(node)
    return not _CACHE[key]


_CACHE: dict[Any, bool] = {}


def _prints(node: fx.Node) -> bool:
    printer = GraphPrinter()
    printer.names = {source: f"x_{number}" for number, source in enumerate(node.all_input_nodes)}
    try:
        printer.node(node)
        if node.target is not operator.setitem:  # an assignment to items has no value
            printer.value(node)
    except UserError:
        return False
    return True


def _replace(graph: fx.Graph, node: fx.Node, captured: Captured) -> None:
    if node.name not in captured.values or not node.users:
        return
    with graph.inserting_before(next(iter(graph.nodes))):
        placeholder = graph.placeholder(f"{node.name}_value")
    captured.values[placeholder.name] = replace(captured.values[node.name], name=placeholder.name)
    node.replace_all_uses_with(placeholder)
