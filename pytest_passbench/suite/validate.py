"""A check of tasks: their graphs are built, and run on fake tensors of every declared shape."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
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
from pytest_passbench.suite import batching, scalars
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.limits import limited_memory
from pytest_passbench.suite.opnames import operator_sequence

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def problems(task: Task) -> Iterator[UserError]:
    """Yield every problem of a task that reading it did not raise, one error each, with file and line.

    A problem is a graph that cannot be built, or whose operators are not the header's ``ops``. Another is a
    subgraph whose graph does not run on its shapes and dtypes. If a shape depends on values, the graph runs on
    example inputs instead of fake tensors.
    """
    graphs: dict[str, torch.fx.GraphModule] = {}
    for key, source in task.graphs.items():
        try:
            graphs[key] = build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        except UserError as error:
            yield error
    for key, gm in graphs.items():
        operators, listed = operator_sequence(gm), task.header.ops
        if operators != listed:
            what = f"graph {key} has the operators [{', '.join(operators)}], the header [{', '.join(listed)}]"
            remedy = "correct ops, or move the graph to another task"
            yield UserError(what, where=_where(task, key), remedy=remedy)
    for subgraph in task.subgraphs:
        if subgraph.graph in graphs:
            yield from _not_running(task, subgraph, graphs[subgraph.graph])


def _where(task: Task, key: str) -> str:
    line = task.graph_lines.get(key)
    return f"{task.path}:{line}" if line is not None else str(task.path)


def _not_running(task: Task, subgraph: Subgraph, gm: torch.fx.GraphModule) -> Iterator[UserError]:
    try:
        _run(subgraph, gm)
    except Exception as error:  # any exception of the operators is a fault of the file
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = _where(task, subgraph.graph)
        yield UserError(f"subgraph {subgraph.id} does not run: {lines[0]}", where=where, remedy="check its inputs")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from logging a traceback of its own for an operator that fails: the error says enough."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _run(subgraph: Subgraph, gm: torch.fx.GraphModule) -> None:
    with torch.no_grad(), _quiet(), batching.closing():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in subgraph.inputs]
                _Named(gm).run(*inputs)
        except _NEEDS_VALUES:
            with limited_memory():
                _Named(gm).run(*example_inputs(subgraph))


class _Named(torch.fx.Interpreter):
    """An interpreter that names the node in every error."""

    def run_node(self, node: torch.fx.Node) -> Any:
        args, _ = self.fetch_args_kwargs_from_env(node)
        if problem := scalars.fault(str(getattr(node.target, "__name__", node.target)), args):
            raise RuntimeError(f"{node.name} ({node.op}): {problem}")
        try:
            return super().run_node(node)
        except _NEEDS_VALUES:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RuntimeError(f"{node.name} ({node.op}): {first}") from None
