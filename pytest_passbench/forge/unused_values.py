"""Computation that is thrown away: values of which the rest of the graph reads only a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.normal_form import COPIES, EXPANDS, ORDERS, RESHAPES
from pytest_passbench.forge.probe import Probe
from pytest_passbench.rewrite.normalise import canonical
from pytest_passbench.suite.opnames import is_metadata

CUTS = {"getitem", "select", "narrow", "split", "chunk", "unbind", "tensor_split", "split_with_sizes"}
MOVES = CUTS | RESHAPES | ORDERS | EXPANDS | COPIES
"""Operators that move elements without reading their values."""
MIN_USED = 0.5
"""The smallest share of a computed value that the rest of the graph must read."""


def thrown_away(probe: Probe) -> Iterator[str]:
    """Yield operators most of whose result nothing reads, since leaving them out is no work of a compiler."""
    for node in probe.pure.graph.nodes:
        if node.op not in ("call_function", "call_method") or is_metadata(node) or canonical(node).op in MOVES:
            continue
        value = probe.values[node]
        if (
            not isinstance(value, torch.Tensor)
            or not value.numel()
            or not all(_takes_part(user, node) for user in node.users)
        ):
            continue
        places = torch.arange(value.numel()).reshape(value.shape)
        read = torch.zeros(value.numel(), dtype=torch.bool)
        for part in _read(probe, node, places):
            read[part.reshape(-1)] = True
        share = float(read.double().mean())
        if share < MIN_USED:
            yield f"only {share:.0%} of {node.name} ({canonical(node).op}) is used"


def _moves(user: fx.Node, node: fx.Node) -> bool:
    """Return True if ``user`` moves elements of ``node``, rather than use them as an index or compute with them."""
    call = canonical(user)
    return call.op in MOVES and call.args.get("input") is node


def _takes_part(user: fx.Node, node: fx.Node) -> bool:
    """Return True if ``user`` may read only some elements of ``node``."""
    return user.op in ("call_function", "call_method") and (_moves(user, node) or _stride(user) > 1)


def _stride(user: fx.Node) -> int:
    """Return the stride of a convolution; 1 for any other operator."""
    call = canonical(user)
    stride = call.get("stride")
    if not call.op.startswith("conv") or "transpose" in call.op or stride is None:
        return 1
    return min(stride) if isinstance(stride, tuple | list) else int(stride)


def _read(probe: Probe, node: fx.Node, places: Any) -> Iterator[torch.Tensor]:
    """Yield the places of a value that its users read; operators of MOVES are followed to what reads their result."""
    for user in node.users:
        if user.op == "output":
            yield places
        elif _moves(user, node):
            yield from _read(probe, user, _moved(probe, user, node, places))
        else:
            yield _convolved(probe, user, node, places)


def _moved(probe: Probe, user: fx.Node, node: fx.Node, places: Any) -> Any:
    interpreter = fx.Interpreter(probe.pure, garbage_collect_values=False)
    interpreter.env = {**probe.values, node: places}
    return interpreter.run_node(user)


def _convolved(probe: Probe, user: fx.Node, node: fx.Node, places: torch.Tensor) -> torch.Tensor:
    """Return the places that a convolution of 1 x 1 elements with a stride reads; all of them for other operators."""
    step, call = _stride(user), canonical(user)
    if step == 1 or call.args.get("input") is not node:
        return places
    weight = probe.values[call.args["weight"]]
    if any(size != 1 for size in weight.shape[2:]):
        return places
    return places[(..., *(slice(None, None, step) for _ in weight.shape[2:]))]
