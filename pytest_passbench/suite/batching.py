"""Levels of ``torch.vmap``, as Dynamo writes them into graphs: four calls that open, enter, leave and close a level.

Transformers' attention masks are made under ``torch.vmap``. Between the calls the values are batched tensors, and
torch holds the open levels in the state of the thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node

OPEN, CLOSE = "_vmap_increment_nesting", "_vmap_decrement_nesting"
ENTER, LEAVE = "_add_batch_dim", "_remove_batch_dim"
CALLS = frozenset({OPEN, ENTER, LEAVE, CLOSE})
"""The names of the four functions, in ``torch._functorch.predispatch`` and in ``torch._C._functorch``."""

_MODULES = ("torch._functorch.predispatch", "torch._C._functorch")
_RANDOMNESS = ("error", "same", "different")


def is_batching(node: Node) -> bool:
    """Return True if a node calls one of the four functions."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name in CALLS and getattr(node.target, "__module__", "") in _MODULES


def level_fault(graph: Graph) -> str | None:
    """Return the fault in how a graph uses levels, in words, or None.

    Every level has to be opened and closed inside the graph, and its batched tensors are used in it only. Otherwise
    torch would raise later, and a level that stays open would change the next graph.
    """
    opened: list[int] = []  # a number for each open level
    inside: dict[Node, frozenset[int]] = {}  # the levels that a value is batched at
    count = 0
    for node in graph.nodes:
        inside[node] = frozenset().union(*(inside[n] for n in node.all_input_nodes))
        if not inside[node] <= set(opened):
            used = "the graph returns a value" if node.op == "output" else f"{node.name} uses a value"
            return f"{used} of a torch.vmap level that is closed"
        if node.op == "output" and opened:
            return f"a torch.vmap level stays open: there are more {OPEN} than {CLOSE}"
        if node.op == "output" and inside[node]:
            return "the graph returns a batched tensor of torch.vmap"
        if not is_batching(node):
            continue
        if problem := _call_fault(node, len(opened)):
            return f"{node.name}: {problem}"
        name = node.target.__name__
        if name == OPEN:
            count += 1
            opened.append(count)
        elif name == CLOSE:
            opened.pop()
        else:
            level = opened[node.args[2 if name == ENTER else 1] - 1]
            inside[node] = inside[node] | {level} if name == ENTER else inside[node] - {level}
    return None


def _call_fault(node: Node, depth: int) -> str:
    """Return what is wrong with the arguments of one of the four calls while ``depth`` levels are open, or ""."""
    args, name = node.args, node.target.__name__
    if node.kwargs or len(args) != {OPEN: 2, ENTER: 3, LEAVE: 4, CLOSE: 0}[name]:
        return f"{name} takes its arguments by position"
    if name == OPEN:
        good = _is_whole(args[0]) and args[0] > 0 and args[1] in _RANDOMNESS
        return "" if good else "the size of a level is a positive number, and its randomness 'error' or the like"
    if name == CLOSE:
        return "" if depth else "no torch.vmap level is open"
    if not isinstance(args[0], Node) or not all(_is_whole(value) for value in args[1:]):
        return f"{name} takes a tensor and plain numbers"
    level = args[2 if name == ENTER else 1]
    return "" if 0 < level <= depth else f"torch.vmap level {level} is not open"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_batched(value: Any) -> bool:
    """Return True for a tensor that is batched at a level, and for a list or tuple that has one."""
    if isinstance(value, (tuple, list)):
        return any(is_batched(item) for item in value)
    return isinstance(value, torch.Tensor) and bool(torch._C._functorch.is_batchedtensor(value))


def unbatched(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor that holds the elements of a batched tensor, or the tensor itself if it is not batched."""
    while torch._C._functorch.is_batchedtensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def close_levels(depth: int = 0) -> None:
    """Close the levels of torch.vmap beyond the first ``depth``, which a call that raised has left open."""
    while open_levels() > depth:
        torch._C._functorch._vmap_decrement_nesting()


def open_levels() -> int:
    """Return the number of open levels."""
    return torch._C._functorch.maybe_current_level() or 0


@contextmanager
def closing() -> Iterator[None]:
    """Close the levels that the body opens and, because it raises, does not close."""
    before = open_levels()
    try:
        yield
    finally:
        close_levels(before)
