"""The check of what launch plans return: the shapes and dtypes of the operators that they replace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter

from pytest_passbench.core.task import Subgraph
from pytest_passbench.suite import batching
from pytest_passbench.suite.build import build_graph

Shape = tuple[str, tuple[int, ...]]
"""A dtype without ``torch.``, and sizes."""


def problems(
    source: str, subgraph: Subgraph, places: Sequence[tuple[str, tuple[str, ...]]], plans: Sequence[tuple[str, Any]]
) -> Iterator[str]:
    """Yield a sentence for each match whose plan returns other shapes or dtypes than the operators it replaces.

    ``places`` and ``plans`` are the matches and the plans of a subgraph, each with the name of its pass. A graph that
    does not run without data is left out.
    """
    graph = build_graph(source, subgraph.id)
    try:
        known = _values(graph, subgraph)
    except Exception:  # a shape that depends on values
        return
    for name, nodes in places:
        wanted = _leaving(graph, nodes, known)
        made = [sorted(map(_returned, plan["returns"])) for of, plan in plans if of == name]
        if wanted is not None and made and wanted not in made:
            yield f"{name} returns {_words(made[0])}; the operators that it replaces give {_words(wanted)}"


def _leaving(graph: GraphModule, nodes: Sequence[str], known: Mapping[str, Shape]) -> list[Shape] | None:
    """Return the values of a match that are used outside it, or None if it is not known of one what it is."""
    inside = [node for node in graph.graph.nodes if node.name in nodes]
    found = [node.name for node in inside if any(user.name not in nodes for user in node.users)]
    return sorted(known[name] for name in found) if all(name in known for name in found) else None


def _values(graph: GraphModule, subgraph: Subgraph) -> dict[str, Shape]:
    with torch.no_grad(), batching.closing(), FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in subgraph.inputs]
        recorder = _Recorder(graph)
        recorder.run(*inputs)
    return recorder.found


class _Recorder(Interpreter):
    """An interpreter that notes what each tensor is."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.found: dict[str, Shape] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.found[n.name] = (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        return value


def _returned(data: Mapping[str, Any]) -> Shape:
    _source, _index, _offset, dtype, shape, _strides = data["operand"]
    return str(dtype), tuple(shape)


def _words(shapes: Sequence[Shape]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape in shapes)
