"""A check of tasks: their graphs are built, and run on fake tensors of every declared shape."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch.fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.fake_run import run_graph
from pytest_passbench.suite.opnames import operator_sequence


def problems(task: Task) -> Iterator[UserError]:
    """Yield every problem of a task that reading it did not raise, one error each, with file and line.

    A problem is a graph that cannot be built, or whose operators are not the header's ``ops``. Another is a
    subgraph whose graph does not run on its shapes and dtypes (:mod:`pytest_passbench.suite.fake_run`).
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
        with _quiet():
            run_graph(gm, subgraph)
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
