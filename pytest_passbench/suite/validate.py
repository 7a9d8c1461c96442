"""What is wrong with a task: its graphs are built, and run on fake tensors of every declared shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.opnames import operator_sequence

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def problems(task: Task) -> Iterator[UserError]:
    """Every problem of a task that reading it did not raise, one error each, with file and line.

    A graph that cannot be built; operators other than the header's ``ops``; a subgraph whose graph does not
    run on its shapes and dtypes. Where a shape depends on values, the graph runs on example inputs instead.
    """
    graphs: dict[str, torch.fx.GraphModule] = {}
    for key, source in task.graphs.items():
        try:
            graphs[key] = build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        except UserError as error:
            yield error
    for key, gm in graphs.items():
        yield from _wrong_operators(task, key, gm)
    for subgraph in task.subgraphs:
        if subgraph.graph in graphs:
            yield from _not_running(task, subgraph, graphs[subgraph.graph])


def _where(task: Task, key: str) -> str:
    line = task.graph_lines.get(key)
    return f"{task.path}:{line}" if line is not None else str(task.path)


def _wrong_operators(task: Task, key: str, gm: torch.fx.GraphModule) -> Iterator[UserError]:
    found = operator_sequence(gm)
    if found != task.header.ops:
        what = f"graph {key} has the operators [{', '.join(found)}], the header [{', '.join(task.header.ops)}]"
        yield UserError(what, where=_where(task, key), remedy="correct ops, or move the graph to another task")


def _not_running(task: Task, subgraph: Subgraph, gm: torch.fx.GraphModule) -> Iterator[UserError]:
    try:
        _run(subgraph, gm)
    except Exception as error:  # whatever the operators raise is a fault of the file
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = _where(task, subgraph.graph)
        yield UserError(f"subgraph {subgraph.id} does not run: {lines[0]}", where=where, remedy="check its inputs")


def _run(subgraph: Subgraph, gm: torch.fx.GraphModule) -> None:
    with torch.no_grad():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in subgraph.inputs]
                _Named(gm).run(*inputs)
        except _NEEDS_VALUES:
            _Named(gm).run(*example_inputs(subgraph))


class _Named(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph, and says of an error which node raised it."""

    def run_node(self, node: torch.fx.Node) -> Any:
        try:
            return super().run_node(node)
        except _NEEDS_VALUES:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RuntimeError(f"{node.name} ({node.op}): {first}") from None
