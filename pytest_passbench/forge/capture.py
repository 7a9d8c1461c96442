"""The capture of models as FX graphs, as ``torch.compile`` hands them to its backend, with their values' statistics.

One forward pass under ``no_grad`` gives one graph per unbroken stretch of Python (graph breaks give several).
Weights are inputs, as Dynamo has inlined modules since torch 2.5.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.task import TensorSpec

Inputs = dict[str, Any] | tuple[Any, ...]

SAMPLED_ELEMENTS = 65536
"""The statistics of a value with more elements come from about this many of them, evenly spread."""


@dataclass
class Captured:
    """A graph, and its values in a real forward pass by node name. Values that are not tensors are left out.

    Integers have ``min`` and ``max`` only.
    """

    module: fx.GraphModule
    values: dict[str, TensorSpec] = field(default_factory=dict)


def capture(model: torch.nn.Module, inputs: Inputs, execute: bool = True) -> list[Captured]:
    """Return the graphs of one forward pass of ``model`` on ``inputs`` (keywords or positions), in order.

    With ``execute`` false no operator runs: graphs return ones, and values have shapes and dtypes only.
    """
    captures: list[Captured] = []

    def backend(module: fx.GraphModule, _examples: list[Any]) -> Callable[..., Any]:
        captured = Captured(module)
        captures.append(captured)
        return _StatisticsRecorder(module, captured).run if execute else _pretend(captured)

    torch._dynamo.reset()
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(model.eval(), backend=backend, dynamic=False)(*args, **kwargs)
    return captures


def _pretend(captured: Captured) -> Callable[..., Any]:
    """Return a stand-in for a graph. It returns ones, of the shapes that tracing found."""
    for node in captured.module.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            captured.values[node.name] = TensorSpec(node.name, tuple(map(int, value.shape)), dtype_name(value))
    graph = captured.module.graph

    def run(*inputs: Any) -> Any:
        places = dict(zip(graph.find_nodes(op="placeholder"), inputs, strict=False))
        return fx.node.map_arg(graph.output_node().args[0], lambda node: places.get(node, _ones_like(node)))

    return run


def _ones_like(node: fx.Node) -> Any:
    value = node.meta.get("example_value")
    if isinstance(value, torch.Tensor):
        return torch.ones(tuple(map(int, value.shape)), dtype=value.dtype)
    return value


def dtype_name(value: torch.Tensor) -> str:
    """Return a tensor's dtype without the prefix ``torch.``, such as ``float32``."""
    return str(value.dtype).removeprefix("torch.")


class _StatisticsRecorder(fx.Interpreter):
    """An interpreter that runs a captured graph once and notes each value's statistics."""

    def __init__(self, module: fx.GraphModule, captured: Captured) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._captured = captured

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output" and not torch._C._functorch.is_batchedtensor(value):
            self._captured.values.setdefault(n.name, describe(n.name, value))
        return value


def describe(name: str, value: torch.Tensor) -> TensorSpec:
    """Return shape, dtype and statistics of a value (floats and integers; four significant digits)."""
    shape, dtype = tuple(value.shape), dtype_name(value)
    if value.numel() == 0 or value.is_complex() or value.dtype == torch.bool:
        return TensorSpec(name, shape, dtype)
    flat = value.detach().reshape(-1)
    flat = flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)]
    if not value.is_floating_point():
        return TensorSpec(name, shape, dtype, min=int(flat.min()), max=int(flat.max()))
    flat = flat.to(torch.float64)
    std = float(flat.std(correction=0))
    return TensorSpec(name, shape, dtype, _round(flat.mean()), _round(std), _round(flat.min()), _round(flat.max()))


def _round(number: Any) -> float:
    return float(f"{float(number):.4g}")
