"""A check of tasks: their graphs are built, and run on fake tensors of every declared shape.

Values that a shape depends on are computed for real: ``x[:, n:]`` needs the value of ``n``, and ``mask.nonzero()``
that of ``mask``. An input of one element has its example value from the start. Any other value is computed from
example inputs, by running only the nodes that it depends on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx import GraphModule, Node

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task, TensorSpec
from pytest_passbench.suite import batching, constants
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs, example_tensor
from pytest_passbench.suite.limits import check_memory, limited_memory
from pytest_passbench.suite.opnames import operator_sequence

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def problems(task: Task) -> Iterator[UserError]:
    """Yield every problem of a task that reading it did not raise, one error each, with file and line.

    A problem is a graph that cannot be built, or whose operators are not the header's ``ops``. Another is a
    subgraph whose graph does not run on its shapes and dtypes, on fake tensors.
    """
    graphs: dict[str, torch.fx.GraphModule] = {}
    for key, source in task.graphs.items():
        try:
            graphs[key] = build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        except UserError as error:
            yield error
    for key, gm in graphs.items():
        operators, listed = operator_sequence(gm.graph.nodes), task.header.ops
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


def run_graph(gm: GraphModule, subgraph: Subgraph) -> None:
    """Run a graph on fake tensors of a subgraph's shapes and dtypes.

    If a value that a shape depends on is made at a level of ``torch.vmap``, the whole graph runs on example inputs.
    Raises RuntimeError, with the name of the node, for an operator that does not take its arguments.
    """
    small = {i: example_tensor(spec, i) for i, spec in enumerate(subgraph.inputs) if math.prod(spec.shape) == 1}
    with torch.no_grad():
        try:
            with batching.closing(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
                inputs = [_fake_input(spec, small.get(i)) for i, spec in enumerate(subgraph.inputs)]
                run = _FakeRun(gm, subgraph, mode)
                run.run(*inputs, initial_env=run.env)  # the environment that the run's values read
        except (*_NEEDS_VALUES, _AtALevel):
            with batching.closing(), limited_memory():
                _Named(gm).run(*example_inputs(subgraph))


def _fake_input(spec: TensorSpec, value: torch.Tensor | None) -> torch.Tensor:
    """Return a fake tensor for an input. It is constant if the input's ``value`` is given."""
    if value is None:
        return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
    return torch.tensor(value.tolist(), dtype=value.dtype)


class _AtALevel(Exception):
    """The error that a needed value is made at a level of ``torch.vmap``."""


class _Named(torch.fx.Interpreter):
    """An interpreter that names the node in every error."""

    def run_node(self, node: Node) -> Any:
        args, _ = self.fetch_args_kwargs_from_env(node)
        if problem := constants.fault(str(getattr(node.target, "__name__", node.target)), args):
            raise RuntimeError(f"{node.name} ({node.op}): {problem}")
        try:
            return super().run_node(node)
        except _NEEDS_VALUES:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise RuntimeError(f"{node.name} ({node.op}): {first}") from None


class _FakeRun(_Named):
    """A run on fake tensors, with real values if needed. Fake tensors stay: they show which nodes share memory."""

    def __init__(self, gm: GraphModule, subgraph: Subgraph, mode: FakeTensorMode) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self._mode = mode
        self._values = _Values(gm, subgraph, self.env)

    def run_node(self, node: Node) -> Any:
        versions = {source: _version(self.env[source]) for source in node.all_input_nodes}
        try:
            value = super().run_node(node)
        except _NEEDS_VALUES:
            if batching.open_levels():
                raise
            value = self._with_values(node)
        changed = [source for source, version in versions.items() if _version(self.env[source]) != version]
        if changed:
            self._values.note_write(node, changed)
        return value

    def _with_values(self, node: Node) -> Any:
        """Return the fake value of a node that needs real values: of its one-element inputs, or else of all."""
        unknown = [source for source in node.all_input_nodes if _is_unknown_number(self.env[source])]
        if unknown:
            with unset_fake_temporarily():
                numbers = [number.clone() for number in self._values.of(unknown, node)]
            for source, number in zip(unknown, numbers, strict=True):
                self.env[source].constant = number
                self._mode.fake_tensor_converter.add_constant_storage_mapping(self.env[source])
            try:
                return super().run_node(node)
            except _NEEDS_VALUES:
                pass
        with unset_fake_temporarily():
            value = self._values.result(node)
        return torch.fx.node.map_aggregate(value, self._fake)

    def _fake(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.numel() == 1:
            return torch.tensor(value.tolist(), dtype=value.dtype)
        return self._mode.from_tensor(value)


class _Values:
    """Values of nodes, computed from example inputs when they are needed, and kept while another node may need them.

    ``fakes`` has the fake values of all nodes so far: two nodes share memory if their fake values do.
    """

    def __init__(self, gm: GraphModule, subgraph: Subgraph, fakes: dict[Node, Any]) -> None:
        self._run, self._subgraph, self._fakes = _Named(gm, garbage_collect_values=False), subgraph, fakes
        self._nodes = list(gm.graph.nodes)
        self._order = {node: place for place, node in enumerate(self._nodes)}
        self._inputs = {node: i for i, node in enumerate(n for n in self._nodes if n.op == "placeholder")}
        self._writers: dict[int, list[Node]] = {}  # the nodes that write to a storage
        self._done: set[Node] = set()

    def note_write(self, node: Node, changed: Iterable[Node]) -> None:
        """Note that a node writes to the memory of others."""
        for storage in self._storages(changed):
            self._writers.setdefault(storage, []).append(node)

    def of(self, nodes: list[Node], at: Node) -> list[Any]:
        """Return the values that nodes have just before ``at`` runs. Raises _AtALevel for one made at a level."""
        check_memory(self._subgraph)
        self._forget_written()
        steps = self._slice(nodes, at)
        if any(batching.is_batching(step) for step in steps):
            raise _AtALevel
        self._done.difference_update(steps)
        with limited_memory():
            for step in steps:
                self._run.env[step] = self._value(step)
                self._done.add(step)
                self._release(step, nodes)
        return [self._run.env[node] for node in nodes]

    def result(self, node: Node) -> Any:
        """Return the value of a node itself. Raises _AtALevel as :meth:`of` does."""
        self.of(node.all_input_nodes, node)
        with limited_memory():
            self._run.env[node] = self._run.run_node(node)
        return self._run.env[node]

    def _value(self, step: Node) -> Any:
        if step in self._inputs:
            place = self._inputs[step]
            return example_tensor(self._subgraph.inputs[place], place)
        return self._run.run_node(step)

    def _slice(self, nodes: list[Node], at: Node) -> list[Node]:
        """Return the nodes to run, in order: what the values depend on, and what writes to their memory before."""
        steps: set[Node] = set()
        waiting: list[int] = []
        for place in self._before(nodes, at):
            heappush(waiting, -place)
        while waiting:
            step = self._nodes[-heappop(waiting)]
            if step not in steps and step not in self._run.env:
                steps.add(step)
                for place in self._before(step.all_input_nodes, step):
                    heappush(waiting, -place)
        return sorted(steps, key=self._order.__getitem__)

    def _before(self, sources: list[Node], step: Node) -> Iterator[int]:
        """Yield the places of the sources of a step, and of the nodes before it that write to their memory."""
        yield from (self._order[source] for source in sources)
        for storage in self._storages(sources) if self._writers else ():
            places = (self._order[writer] for writer in self._writers.get(storage, ()))
            yield from (place for place in places if place < self._order[step])

    def _forget_written(self) -> None:
        """Forget the values in memory that some node writes to: a later one may need them as they were before."""
        if not self._writers:
            return
        writers = {node for nodes in self._writers.values() for node in nodes}
        for node in {*self._run.env, *self._done}:
            if node in writers or self._storages([node]) & self._writers.keys():
                self._run.env.pop(node, None)
                self._done.discard(node)

    def _release(self, step: Node, pending: list[Node]) -> None:
        """Forget the values that only nodes which have run need."""
        for source in step.all_input_nodes:
            if source not in pending and self._done.issuperset(source.users):
                self._run.env.pop(source, None)

    def _storages(self, nodes: Iterable[Node]) -> set[int]:
        tensors = (tensor for node in nodes for tensor in _tensors(self._fakes.get(node)))
        return {tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided}


def _is_unknown_number(value: Any) -> bool:
    """Return True for a fake tensor of one element whose value is not known."""
    return isinstance(value, FakeTensor) and value.numel() == 1 and value.constant is None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a node's value; for a batched one, the tensor that has its elements."""
    if isinstance(value, torch.Tensor):
        yield batching.unbatched(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _version(value: Any) -> int:
    return sum(tensor._version for tensor in _tensors(value))
