"""Models to FX graphs: what ``torch.compile`` hands to its backend, with what every value looked like.

One forward pass under ``no_grad`` gives one graph per unbroken stretch of Python (graph breaks give several).
Weights are inputs, as Dynamo has inlined modules since torch 2.5.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

SAMPLE = 65536
"""Statistics of larger values are taken from that many of their elements, evenly spread."""


@dataclass(frozen=True)
class ValueStats:
    """What one value of the graph was in a real forward pass; ``min`` and ``max`` are kept for integers too."""

    shape: tuple[int, ...]
    dtype: str
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None


@dataclass
class Captured:
    """One graph, and its values' statistics by node name (values that are no tensors are absent)."""

    module: fx.GraphModule
    values: dict[str, ValueStats] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)


def capture(model: torch.nn.Module, inputs: dict[str, Any] | tuple[Any, ...]) -> list[Captured]:
    """The graphs of one forward pass of ``model`` on ``inputs`` (keywords or positions), in order of execution."""
    found: list[Captured] = []

    def backend(module: fx.GraphModule, _examples: list[Any]) -> Any:
        captured = Captured(module)
        found.append(captured)
        recorder = _Recorder(module, captured)
        return recorder.run

    torch._dynamo.reset()
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(model.eval(), backend=backend, dynamic=False)(*args, **kwargs)
    return found


class _Recorder(fx.Interpreter):
    """Runs a captured graph once and writes down each value's statistics as it appears."""

    def __init__(self, module: fx.GraphModule, captured: Captured) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._captured = captured

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output":
            self._captured.values.setdefault(n.name, describe(value))
            if n.op == "get_attr":
                self._captured.constants.setdefault(n.name, value)
        return value


def describe(value: torch.Tensor) -> ValueStats:
    """Shape, dtype and statistics of ``value`` (floats and integers; four significant digits)."""
    shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    if value.numel() == 0 or value.is_complex() or value.dtype == torch.bool:
        return ValueStats(shape, dtype)
    flat = value.detach().reshape(-1)
    flat = flat[:: max(1, flat.numel() // SAMPLE)]
    if not value.is_floating_point():
        return ValueStats(shape, dtype, min=int(flat.min()), max=int(flat.max()))
    flat = flat.to(torch.float64)
    std = float(flat.std(correction=0))
    return ValueStats(shape, dtype, _round(flat.mean()), _round(std), _round(flat.min()), _round(flat.max()))


def _round(number: Any) -> float:
    return float(f"{float(number):.4g}")
