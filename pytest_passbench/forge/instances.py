"""Instances of pieces: canonical source and recorded inputs, in each dtype.

A piece is converted to another dtype as the same model in that dtype would run it. The bfloat16 capture shows which
inputs become bfloat16, which stay float32 (position tables, running statistics), and which dtype literals follow.
float16 is treated as bfloat16 is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.clean import edited
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.decompose import GraphPiece
from pytest_passbench.forge.normal_form import canonical_source, digest
from pytest_passbench.forge.probe import Probe
from pytest_passbench.suite.opnames import operator_sequence

DTYPES = ("float32", "bfloat16", "float16")
FLOATS = {"float32", "float64"}


@dataclass(frozen=True)
class Instance:
    """A subgraph of a task to be made: its source text, its inputs, and its origin."""

    ops: tuple[str, ...]
    source: str
    dtype: str
    inputs: tuple[TensorSpec, ...]
    origin: str
    modality: str
    variant: str
    provenance: str
    meta: tuple[tuple[str, object], ...] = ()

    @property
    def key(self) -> str:
        """A hash that is equal exactly for the same computation on the same shapes and dtypes."""
        return digest([self.source, *(f"{s.shape}{s.dtype}" for s in self.inputs)])

    @property
    def elements(self) -> int:
        """The number of input elements, all inputs together."""
        return self.subgraph("s", "g").elements

    def subgraph(self, name: str, graph: str) -> Subgraph:
        """Return the instance as a part of a task file."""
        return Subgraph(name, graph, self.dtype, self.inputs, self.provenance, dict(self.meta))

    def probe(self) -> Probe:
        """Return a probe of a task with this subgraph alone, for the rules."""
        header = TaskHeader("probe", self.ops, (self.origin,), (), 1, self.modality)
        task = Task(header, Path("probe"), {"g": self.source}, (self.subgraph("s", "g"),))
        return Probe(task, task.subgraphs[0])


def instances(graph: Graph, piece: GraphPiece) -> Iterator[Instance]:
    """Yield ``piece`` in each of :data:`DTYPES`, its inputs as recorded, without running it."""
    for dtype in DTYPES:
        module = piece.module if dtype == "float32" else lower_graph(piece.module, graph.follows, dtype)
        specs = tuple(
            replace(spec, name=f"in_{i}", dtype=input_dtype(spec.dtype, graph.low.get(spec.name), dtype))
            for i, spec in enumerate(piece.inputs)
        )
        yield Instance(
            ops=operator_sequence(module.graph.nodes),
            source=canonical_source(module),
            dtype=dtype,
            inputs=specs,
            origin=graph.case,
            modality=graph.modality,
            variant=graph.variant.label,
            provenance=f"{graph.case} ({graph.note}, batch {graph.variant.batch}, size {graph.variant.size})",
        )


def lower_graph(module: fx.GraphModule, follows: frozenset[str], dtype: str) -> fx.GraphModule:
    """Return a copy of ``module`` in which the literals of the operators in ``follows`` are those of ``dtype``."""

    def lower(node: fx.Node) -> None:
        if node.meta.get("origin") in follows:
            node.args = fx.node.map_aggregate(node.args, lambda a: lower_literal(a, dtype))
            node.kwargs = fx.node.map_aggregate(node.kwargs, lambda a: lower_literal(a, dtype))

    return edited(module, lower)


def lower_literal(value: Any, dtype: str) -> Any:
    """Return ``dtype`` for float32, its extremes for those of float32, and any other value as it is."""
    if value is torch.float32:
        return getattr(torch, dtype)
    if isinstance(value, float) and abs(value) == torch.finfo(torch.float32).max:
        return math.copysign(torch.finfo(getattr(torch, dtype)).max, value)
    return value


def input_dtype(recorded: str, low: str | None, dtype: str) -> str:
    """Return the dtype, in a piece of ``dtype``, of an input that was recorded as ``recorded``.

    ``low`` is its dtype in the bfloat16 model, or None if unknown.
    """
    if recorded not in FLOATS or dtype == "float32":
        return recorded
    if low is None or low == "bfloat16":
        return dtype
    return low
