"""Step 1: the capture of every case at its sizes, and once in bfloat16 to find what follows the model's dtype.

A case's graphs are kept in a file: source text and statistics as JSON, which nothing executes.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.capture import Captured, ValueStats, capture
from pytest_passbench.forge.clean import clean, is_heavy, is_low_literal, lift, literals, sink
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.printing import to_source

MAX_STATEMENTS = 50_000
"""The most statements of a captured graph. Those of a whole model are many more than a task may have."""


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
    original: dict[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> fx.Graph:
        """The operators."""
        return self.captured.module.graph


def capture_case(case: ModelCase) -> list[Graph]:
    """Return every graph of ``case``: its variants in float32, with the dtypes of one bfloat16 capture of the
    first variant.

    Raises any exception of the architecture at the first variant. Later variants that it cannot run are left
    out.
    """
    model = case.build()
    first, *others = case.variants
    real = [
        _graph(case, first, i, captured)
        for i, captured in enumerate(_cleaned(model, case.inputs(model, first), True))
    ]
    graphs = list(real)
    for variant in others:
        graphs += [graph for graph in _shapes_only(model, case, variant) if adopt(graph, real)]
    low = _capture_low(model, case)
    for graph in graphs:
        if graph.index < len(low):
            annotate(graph, low[graph.index])
        sink(graph.captured.module, is_heavy)
        lift(graph.captured)
    return graphs


def _graph(case: ModelCase, variant: Variant, index: int, captured: Captured) -> Graph:
    return Graph(case.name, case.modality, case.note, variant, index, captured)


def _shapes_only(model: torch.nn.Module, case: ModelCase, variant: Variant) -> list[Graph]:
    try:
        captures = _cleaned(model, case.inputs(model, variant), False)
    except Exception:  # a size that this architecture cannot take
        return []
    return [_graph(case, variant, index, captured) for index, captured in enumerate(captures)]


def adopt(graph: Graph, real: list[Graph]) -> bool:
    """Give a graph of shapes the statistics of the same graph at the first size.

    Return False if their operators differ.
    """
    if graph.index >= len(real) or not _agree(graph.captured, real[graph.index].captured):
        return False
    values = real[graph.index].captured.values
    captured_values = graph.captured.values
    for a, b in zip(graph.graph.nodes, real[graph.index].graph.nodes, strict=True):
        if b.name in values:
            shape = captured_values[a.name].shape if a.name in captured_values else values[b.name].shape
            captured_values[a.name] = dataclasses.replace(values[b.name], shape=shape)
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
        return _cleaned(model, _lower(case.inputs(model, case.variants[0])), False)
    except Exception:  # a model that has no bfloat16 form keeps its float32 graphs
        return []


def _lower(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: _lower(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_lower(value) for value in inputs)
    if isinstance(inputs, torch.Tensor) and inputs.is_floating_point():
        return inputs.to(torch.bfloat16)
    return inputs


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


def save(graphs: list[Graph], path: Path) -> int:
    """Write the graphs that have a spelling, and return how many these are."""
    documents = [document for graph in graphs if (document := _document(graph)) is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(documents), encoding="utf-8")
    return len(documents)


def load(path: Path) -> list[Graph]:
    """Return the graphs of a file that :func:`save` wrote. Node names are ``in_0``, ``tmp_0``, ..."""
    return [_graph_of(document, path) for document in json.loads(path.read_text(encoding="utf-8"))]


def _document(graph: Graph) -> dict[str, Any] | None:
    try:
        source = to_source(graph.captured.module)
    except UserError:
        return None
    names = printed_names(graph)
    return {
        "case": graph.case,
        "modality": graph.modality,
        "note": graph.note,
        "variant": astuple(graph.variant),
        "index": graph.index,
        "source": source,
        "values": {names[k]: astuple(v) for k, v in graph.captured.values.items() if k in names},
        "low": {names[k]: v for k, v in graph.low.items() if k in names},
        "follows": sorted(names[k] for k in graph.follows if k in names),
        "original": {new: old for old, new in names.items() if new.startswith("in_")},
    }


def printed_names(graph: Graph) -> dict[str, str]:
    """Return the printer's name of each node."""
    names, inputs, values = {}, 0, 0
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            names[node.name], inputs = f"in_{inputs}", inputs + 1
        elif node.op != "output" and getattr(node.target, "__name__", "") != "setitem":
            names[node.name], values = f"tmp_{values}", values + 1
    return names


def _graph_of(document: dict[str, Any], path: Path) -> Graph:
    module = build_graph(document["source"], str(path), statements=MAX_STATEMENTS)
    values = {name: _stats(fields) for name, fields in document["values"].items()}
    return Graph(
        document["case"],
        document["modality"],
        document["note"],
        Variant(*document["variant"]),
        document["index"],
        Captured(module, values),
        document["low"],
        frozenset(document["follows"]),
        document["original"],
    )


def _stats(fields: list[Any]) -> ValueStats:
    shape, dtype, *numbers = fields
    return ValueStats(tuple(shape), dtype, *numbers)
