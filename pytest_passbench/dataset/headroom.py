"""The head-room of a row's graph: what fusing it could save of the memory traffic of its operators.

It says nothing of products and convolutions, whose time is arithmetic, and depends on no machine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.probe import Values


def headroom(module: fx.GraphModule, values: Values) -> float:
    """Return the bytes that the operators of a graph read and write, one after the other, over those of the graph.

    ``values`` has the value of each node, on any device. The graph has to read its inputs and to write its outputs.
    An operator whose result lies in the memory of an operand, as that of a view, moves nothing. The ratio has two
    digits, and is 0 if the graph moves nothing.
    """
    moved = 0
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        operands = [tensor for source in node.all_input_nodes for tensor in _tensors(values[source])]
        memory = {_place(tensor) for tensor in operands}
        results = [tensor for tensor in _tensors(values[node]) if _place(tensor) not in memory]
        if results:
            moved += sum(map(_bytes, (*operands, *results)))
    output = next(node for node in module.graph.nodes if node.op == "output")
    inputs = [values[node] for node in module.graph.nodes if node.op == "placeholder" and node.users]
    least = sum(_bytes(tensor) for value in (*inputs, *map(values.get, output.all_input_nodes))
                for tensor in _tensors(value))  # fmt: skip
    return float(f"{moved / least:.2g}") if least else 0.0


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (tuple, list)) else []


def _place(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor. An expanded one has no more than its memory."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))
