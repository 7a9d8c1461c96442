"""The graphs of a model at each of its sizes, and once in bfloat16 to find what follows the model's dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from pytest_passbench.forge.capture import Captured, capture
from pytest_passbench.forge.clean import clean, is_heavy, is_low_literal, lift, literals, sink
from pytest_passbench.forge.models import ModelCase, Variant


@dataclass
class Graph:
    """A cleaned captured graph of one case at one size.

    ``low`` holds the dtype of every value in the bfloat16 model. ``follows`` names the operators whose dtype
    literals are the model's dtype. Both are empty if the bfloat16 capture has other operators.
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


Corpus = Mapping[str, Sequence[Graph]]
"""The graphs of one model or of many, by the case's name."""


def capture_case(case: ModelCase, once: bool = False) -> list[Graph]:
    """Return every graph of ``case``: its variants in float32, with the dtypes of the first one in bfloat16.

    With ``once``, return the float32 graphs of the first variant alone, in a third of the time. Raises any exception
    of the architecture at the first variant. Later variants that it cannot run are left out.
    """
    model = case.build()
    first, *others = case.variants[:1] if once else case.variants
    real = _graphs(model, case, first, True)
    graphs = list(real)
    for variant in others:
        try:
            sized = _graphs(model, case, variant, False)
        except Exception:  # a size that this architecture cannot take
            continue
        graphs += [graph for graph in sized if adopt(graph, real)]
    low = [] if once else _capture_low(model, case)
    for graph in graphs:
        if graph.index < len(low):
            annotate(graph, low[graph.index])
        sink(graph.captured.module, is_heavy)
        lift(graph.captured)
    return graphs


def _graphs(model: torch.nn.Module, case: ModelCase, variant: Variant, execute: bool) -> list[Graph]:
    captures = _cleaned(model, case.inputs(model, variant), execute)
    return [Graph(case.name, case.modality, case.note, variant, *numbered) for numbered in enumerate(captures)]


def adopt(graph: Graph, real: list[Graph]) -> bool:
    """Give a graph, in place, the statistics of the one at the first size. Return False if their operators differ."""
    if graph.index >= len(real) or not _agree(graph.captured, real[graph.index].captured):
        return False
    values = real[graph.index].captured.values
    captured_values = graph.captured.values
    for a, b in zip(graph.graph.nodes, real[graph.index].graph.nodes, strict=True):
        if b.name in values:
            shape = captured_values[a.name].shape if a.name in captured_values else values[b.name].shape
            captured_values[a.name] = dataclasses.replace(values[b.name], name=a.name, shape=shape)
    return True


def _agree(first: Captured, other: Captured) -> bool:
    """Return True if two captures have the same operators in the same order."""
    a, b = first.module.graph.nodes, other.module.graph.nodes
    return len(a) == len(b) and all(
        x.op == y.op and (x.op == "placeholder" or x.target == y.target) for x, y in zip(a, b, strict=True)
    )


def _cleaned(model: torch.nn.Module, inputs: Any, execute: bool) -> list[Captured]:
    captures = capture(model, inputs, execute)
    for captured in captures:
        clean(captured.module)
    return captures


def _capture_low(model: torch.nn.Module, case: ModelCase) -> list[Captured]:
    model = model.to(torch.bfloat16)  # before its inputs are made, since a cache among them has the model's dtype
    try:
        inputs = case.inputs(model, case.variants[0])
        return _cleaned(model, tree_map(_lower, inputs, is_leaf=lambda v: not isinstance(v, dict | tuple)), False)
    except Exception:  # a model that has no bfloat16 form keeps its float32 graphs
        return []


def _lower(value: Any) -> Any:
    return value.to(torch.bfloat16) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def annotate(graph: Graph, low: Captured) -> None:
    """Note which values and dtype literals follow the model's dtype, if both captures agree node by node."""
    if not _agree(graph.captured, low):
        return
    pairs = list(zip(graph.graph.nodes, low.module.graph.nodes, strict=True))
    graph.low = {a.name: low.values[b.name].dtype for a, b in pairs if b.name in low.values}
    graph.follows = frozenset(
        a.name
        for a, b in pairs
        if a.op in ("call_function", "call_method")
        and any(is_low_literal(x, y) for x, y in zip(literals(a), literals(b), strict=False))
    )
