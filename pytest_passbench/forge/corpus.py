"""Step 1: every case captured at its sizes, and once in bfloat16 to learn what follows the model's dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .capture import Captured, capture
from .clean import clean, is_low_literal, literals
from .models import Case, Variant


@dataclass
class Graph:
    """A cleaned captured graph of one case at one size.

    ``low`` has the dtype of every value in the bfloat16 model, ``follows`` the operators whose dtype literals
    are the model's dtype; both are empty where the bfloat16 capture took another course.
    """

    case: str
    modality: str
    note: str
    variant: Variant
    index: int
    captured: Captured
    low: dict[str, str] = field(default_factory=dict)
    follows: frozenset[str] = frozenset()

    @property
    def graph(self) -> fx.Graph:
        """The operators."""
        return self.captured.module.graph


def capture_case(case: Case) -> list[Graph]:
    """Every graph of ``case``: its variants in float32, annotated from one bfloat16 capture of the first variant."""
    model = case.build()
    graphs: list[Graph] = []
    for variant in case.variants:
        for index, captured in enumerate(capture(model, case.inputs(model, variant))):
            clean(captured.module)
            graphs.append(Graph(case.name, case.modality, case.note, variant, index, captured))
    low = _capture_low(model, case)
    for graph in graphs:
        if graph.index < len(low):
            annotate(graph, low[graph.index])
    return graphs


def _capture_low(model: torch.nn.Module, case: Case) -> list[Captured]:
    variant = case.variants[0]
    inputs = case.inputs(model, variant)
    model = model.to(torch.bfloat16)
    try:
        found = capture(model, _lower(inputs))
    except Exception:  # a model that has no bfloat16 form keeps its float32 graphs
        return []
    for captured in found:
        clean(captured.module)
    return found


def _lower(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: _lower(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_lower(value) for value in inputs)
    if isinstance(inputs, torch.Tensor) and inputs.is_floating_point():
        return inputs.to(torch.bfloat16)
    return inputs


def annotate(graph: Graph, low: Captured) -> None:
    """Write down which values and dtype literals follow the model's dtype, if both captures agree node by node."""
    pairs = list(zip(graph.graph.nodes, low.module.graph.nodes, strict=False))
    if len(graph.graph.nodes) != len(low.module.graph.nodes) or any(a.target != b.target for a, b in _calls(pairs)):
        return
    graph.low = {a.name: low.values[b.name].dtype for a, b in pairs if b.name in low.values}
    graph.follows = frozenset(
        a.name
        for a, b in _calls(pairs)
        if any(is_low_literal(x, y) for x, y in zip(literals(a), literals(b), strict=False))
    )


def _calls(pairs: list[tuple[fx.Node, fx.Node]]) -> Iterator[tuple[fx.Node, fx.Node]]:
    return ((a, b) for a, b in pairs if a.op in ("call_function", "call_method"))
