"""The arguments that a wrapper gets: the patterns are matched with all subgraphs of the task, as the judge does."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.task import Task
from pytest_passbench.first_pass.forms import same
from pytest_passbench.first_pass.parts import Part
from pytest_passbench.first_pass.values import TensorForm
from pytest_passbench.plans.graphs import Traced
from pytest_passbench.plans.launch import Request
from pytest_passbench.plans.values import decode
from pytest_passbench.rewrite.apply import apply_passes
from pytest_passbench.rewrite.effects import thread_inplace
from pytest_passbench.rewrite.passes import Kernel, Pass
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs

Column = tuple[Any, ...]
"""The arguments of a wrapper in one match, each a :class:`TensorForm` or a literal."""


class _Requests:
    """A source of kernels that only notes the requests for them."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Column]] = {}

    def kernel(self, request: Request) -> Kernel:
        """Note the arguments of a match."""
        stated = (argument.form for argument in request.tensors)
        forms = [TensorForm(getattr(torch, form.dtype), form.shape, form.strides) for form in stated]
        values = [decode(value, lambda _tag, place: forms[place]) for value in request.arguments]
        columns = self.columns.setdefault(request.name, [])
        columns += [tuple(values)] if not any(all(map(same, values, column)) for column in columns) else []
        return lambda *_tensors: None

    def regions(self, name: str, graph: str) -> list[list[str]]:  # noqa: ARG002
        """Return no region: first passes have patterns."""
        return []


def columns(task: Task, parts: dict[str, Part]) -> dict[str, list[Column]]:
    """Return, for each pass by its name, the arguments of its matches in all subgraphs, each once.

    The passes are applied in order, each to what the former ones have left.
    """
    passes, requests = [_as_pass(name, part) for name, part in parts.items()], _Requests()
    alike = grouped(task.subgraphs, lambda item: (item.graph, tuple((x.dtype, x.shape) for x in item.inputs)))
    for subgraph, *_others in alike.values():
        module = build_graph(task.graphs[subgraph.graph], str(task.path))
        with torch.no_grad():
            apply_passes(module, passes, example_inputs(subgraph), requests)
    return requests.columns


def _as_pass(name: str, part: Part) -> Pass:
    pattern, arguments = Graph(), Graph()
    copies = {argument: pattern.placeholder(part.names[argument]) for argument in part.arguments}
    for node in part.nodes:
        copies[node] = pattern.node_copy(node, copies.__getitem__)
    results = tuple(copies[node] for node in part.returned)
    pattern.output(results if len(results) > 1 else results[0])
    arguments.output(tuple(arguments.placeholder(part.names[argument]) for argument in part.arguments))
    thread_inplace(pattern)
    return Pass(name, Traced(pattern), Traced(arguments))
