"""A candidate's passes as a backend of ``torch.compile``, and as a pass of TorchInductor's before autograd."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch.autograd import forward_ad
from torch.fx import Graph, GraphModule, Node

from pytest_passbench.core.plurals import counted
from pytest_passbench.deploy.passes import DeployedPasses, open_directory
from pytest_passbench.deploy.sizes import for_all_sizes, with_numbers
from pytest_passbench.rewrite.apply import apply_passes
from pytest_passbench.rewrite.meta import copied, forget_values, storages
from pytest_passbench.rewrite.opaque import opaque, with_strides
from pytest_passbench.rewrite.passes import Kernel, PassError
from pytest_passbench.runner.plan_runtime import WrongArgument

GraphFunction = Callable[..., Any]
_UNFIT = (WrongArgument, AssertionError)  # raised by a plan, and by torch's check of a layout
_SHARED = "an input that it changes shares memory with another"
_NO_GRAD = "(call the model in torch.no_grad())"
# torch.func's levels, under which a tensor has no memory of its own.
_LEVELS = frozenset({"_grad_increment_nesting", "_jvp_increment_nesting", "_enter_dual_level", "_make_dual"})
_SWITCHES = frozenset({torch._C._set_grad_enabled, torch.set_grad_enabled})


@dataclass
class AppliedGraph:
    """A graph that ``torch.compile`` handed over.

    ``operators`` are the names of its operators, ``covered`` those that kernels replace. ``matches`` has the number
    of matches by pass. ``notes`` are sentences on what was left to eager, and why.
    """

    operators: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    matches: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class DeploymentReport:
    """The graphs of a program in the order in which they were compiled. Its text is a table for a terminal."""

    graphs: list[AppliedGraph] = field(default_factory=list)

    @property
    def matches(self) -> Counter[str]:
        """The number of matches by pass, over all graphs."""
        return sum((Counter(graph.matches) for graph in self.graphs), Counter())

    @property
    def left(self) -> Counter[str]:
        """The operators that no kernel replaces, with the number of their calls."""
        return sum((Counter(graph.operators) - Counter(graph.covered) for graph in self.graphs), Counter())

    def __str__(self) -> str:
        operators = sum(len(graph.operators) for graph in self.graphs)
        covered = sum(len(graph.covered) for graph in self.graphs)
        lines = [f"{counted(len(self.graphs), 'graph')}; kernels replace {covered} of {operators} operators"]
        if self.matches:
            lines.append(tabulate(self.matches.most_common(), headers=["pass", "matches"]))
        if self.left:
            calls = ", ".join(f"{name} ({count})" for name, count in self.left.most_common(10))
            lines.append(f"left to eager: {calls}")
        lines += dict.fromkeys(note for graph in self.graphs for note in graph.notes)
        return "\n".join(lines)


class PassWarning(UserWarning):
    """A graph, or a part of it, runs in eager although a pass was asked for."""


class _Deployment:
    """The passes of a candidate, and a report of the graphs so far."""

    def __init__(self, candidate: str | Path, *, task: str | None = None) -> None:
        """Load the passes for all tasks of the candidate, or those for ``task`` if it has a directory for each.

        Raises UserError for a folder that is no candidate, and PassError for a pass that cannot be imported.
        """
        self._source = DeployedPasses(open_directory(candidate, task))
        self._report = DeploymentReport()

    def report(self) -> DeploymentReport:
        """Return what was matched, and what was left to eager, in all graphs so far."""
        return self._report

    def _next_graph(self) -> AppliedGraph:
        self._report.graphs.append(AppliedGraph())
        return self._report.graphs[-1]


class PassBackend(_Deployment):
    """A backend of ``torch.compile`` that applies a candidate's passes to each graph, as the judge does.

    Eager runs what no pass matches. A pass that cannot be loaded raises PassError when the backend is made. A pass
    that fails in a graph is left out of it, with a warning. A graph that needs gradients runs in eager.
    """

    def __call__(self, graph: GraphModule, example_inputs: Sequence[Any]) -> GraphFunction:
        """Return the graph with its passes, as a function for ``torch.compile``."""
        if any(isinstance(value, torch.SymInt) for value in example_inputs):
            return for_all_sizes(graph, self._with_passes)
        return self._with_passes(graph, example_inputs)

    def _with_passes(self, graph: GraphModule, inputs: Sequence[Any]) -> GraphFunction:
        """Return the graph for inputs of these layouts. Its first call is made here, on copies.

        It leaves the program's random generators as they are: with dynamic sizes, it runs within a call.
        """
        record = self._next_graph()
        eager: GraphFunction = graph.forward
        if needs_gradients(graph, inputs):
            _warn(record, f"a graph that needs gradients runs in eager {_NO_GRAD}")
            return eager
        devices = {value.device for value in inputs if isinstance(value, torch.Tensor) and value.is_cuda}
        with torch.random.fork_rng(devices), torch.inference_mode(False), torch.no_grad():  # tensors have versions
            module, written = applied(graph, inputs, self._source, record)
        forget_values(module)
        return _guarded(eager, module.forward, written, record) if module is not graph else eager


def applied(
    graph: GraphModule, inputs: Sequence[Any], source: DeployedPasses, record: AppliedGraph
) -> tuple[GraphModule, list[int]]:
    """Apply passes to a graph until none of them fails. Return the result, and the places of inputs that it changes.

    The result is called once, on copies of ``inputs``. A pass that raises PassError is left out, with a warning. If a
    plan does not fit the graph's values, or kernels change an input that the graph does not change, the graph itself
    is returned, with a warning.
    """
    passes: list[Any] = list(source.passes)
    while True:
        try:
            result = apply_passes(graph, passes, list(inputs), source)
            _keep_strides(result.module)
            copies = [copied(value) for value in inputs]
            versions = [getattr(value, "_version", 0) for value in copies]
            if result.matches:
                with torch.no_grad():
                    result.module.forward(*copies)
        except PassError as error:
            _warn(record, f"{error}; it is left out of a graph")
            passes.remove(next(item for item in passes if item.name == error.name))
            continue
        except _UNFIT as error:  # for values within the graph, such as two views of one tensor
            _warn(record, f"a graph runs in eager: {_first_line(error)}")
            return graph, []
        record.operators = result.operators
        written = [getattr(copy, "_version", 0) > version for copy, version in zip(copies, versions, strict=True)]
        matches = {report.name: report.matches for report in result.reports if report.matches}
        unwritten = (pair for *pair, changes in zip(inputs, copies, written, strict=True) if not changes)
        if any(_differ(value, copy) for value, copy in unwritten):
            _warn(record, f"a graph runs in eager: a kernel of {', '.join(matches)} changes an input of the graph")
            return graph, []
        record.covered, record.matches = result.covered, matches
        left = [(report.name, reason) for report in result.reports for reason in report.left]
        record.notes += [f"pass {name} leaves to eager {reason}" for name, reason in left]
        return result.module, [place for place, changes in enumerate(written) if changes]


def _keep_strides(module: GraphModule) -> None:
    """Make each kernel of a rewritten graph return eager's strides, which ``as_strided`` and ``view`` need.

    The graph's nodes have the values that :func:`~pytest_passbench.rewrite.meta.record_values` recorded.
    """
    for node in module.graph.nodes:
        if "passbench_pass" in node.meta:
            node.target = _with_eagers_strides(node.target, node.meta["passbench"])
    module.recompile()


def _with_eagers_strides(kernel: Kernel, eager: Any) -> Kernel:
    """Return a kernel that copies each result whose strides are not eager's. ``eager`` is the value of its node."""
    single = not isinstance(eager, (tuple, list))
    layouts = [_layout(value) for value in ((eager,) if single else eager)]

    def call(*tensors: torch.Tensor) -> Any:
        result = kernel(*tensors)
        pairs = zip((result,) if single else result, layouts, strict=False)
        values = tuple(
            with_strides(value, layout[1])
            if layout is not None and value.shape == layout[0] and value.stride() != layout[1]
            else value
            for value, layout in pairs
        )
        return values[0] if single else values

    return call


def _layout(value: Any) -> tuple[torch.Size, tuple[int, ...]] | None:
    """Return the shape and the strides of a value. Return None if a copy cannot have them.

    Such a value is no tensor, or some of its elements share memory, as in an expanded tensor.
    """
    if not isinstance(value, torch.Tensor) or torch._debug_has_internal_overlap(value) == 1:
        return None
    return value.shape, value.stride()


def _differ(value: Any, copy: Any) -> bool:
    """Return True if a tensor's memory has other bytes than that of its copy."""
    if not isinstance(value, torch.Tensor):
        return False
    empty = torch.empty(0, dtype=torch.uint8, device=value.device)
    memory, other = (empty.new_empty(0).set_(tensor.untyped_storage()) for tensor in (value, copy))
    return not torch.equal(memory, other)


def _guarded(
    eager: GraphFunction, rewritten: GraphFunction, written: Sequence[int], record: AppliedGraph
) -> GraphFunction:
    """Return a rewritten graph that changes the inputs at the places ``written``.

    A call runs in eager if such an input shares memory with another, which the passes did not see. So does one with
    arguments that no plan fits, unless an input may have changed by then.
    """

    def call(*inputs: Any) -> Any:
        if written and _shared(inputs, written):
            _warn(record, f"a call of a graph ran in eager: {_SHARED}")
            return eager(*inputs)
        try:
            return rewritten(*inputs)
        except (*_UNFIT, PassError) as error:
            if written:
                raise
            _warn(record, f"a call of a graph ran in eager: {_first_line(error)}")
            return eager(*inputs)

    return call


def _shared(inputs: Sequence[Any], written: Sequence[int]) -> bool:
    """Return True if one of the inputs at the places ``written`` shares its storage with another input."""
    counts = Counter(storage for value in inputs for storage in storages(value))
    return any(counts[storage] > 1 for place in written for storage in storages(inputs[place]))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _warn(record: AppliedGraph, message: str) -> None:
    """Note a message, and warn of it if it is new."""
    if message not in record.notes:
        record.notes.append(message)
        warnings.warn(f"passbench: {message}", PassWarning, stacklevel=2)


class InductorPass(_Deployment):
    """A candidate's passes for ``torch._inductor.config.pre_grad_custom_pass``. TorchInductor compiles the rest.

    It has no ``uuid``: a graph from TorchInductor's cache would call operators that only this process has.
    """

    def __call__(self, graph: Graph) -> None:
        """Apply the passes to a graph in place.

        A graph that needs gradients, or has dynamic sizes, is left as it is, with a warning.
        """
        record = self._next_graph()
        inputs = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
        if any(not isinstance(value, torch.Tensor) or not with_numbers(value) for value in inputs):
            _warn(record, "a graph with dynamic sizes is left to TorchInductor")
            return
        owner = GraphModule(graph.owning_module or {}, graph)
        if needs_gradients(owner, inputs):
            _warn(record, f"a graph that needs gradients is left to TorchInductor {_NO_GRAD}")
            return
        try:
            module, written = applied(owner, [_sample(value) for value in inputs], self._source, record)
        except Exception as error:  # not every graph can be called with random numbers
            _warn(record, f"a graph is left to TorchInductor: with random inputs, {type(error).__name__}: {error}")
            return
        if record.matches and _shared(inputs, written):
            record.covered, record.matches = [], {}
            _warn(record, f"a graph is left to TorchInductor: {_SHARED}")
        elif record.matches:
            _replace(graph, opaque(module).graph)


def _sample(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the layout of another and with data: random floats, or zeros for other dtypes."""
    sample = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
    return sample.uniform_(-1, 1) if sample.is_floating_point() else sample


def _replace(graph: Graph, other: Graph) -> None:
    """Give a graph the nodes of another, but keep its own inputs: Dynamo's data on them would not be copied."""
    for node in reversed(list(graph.nodes)):
        if node.op != "placeholder":
            graph.erase_node(node)
    inputs = zip(other.find_nodes(op="placeholder"), graph.find_nodes(op="placeholder"), strict=True)
    graph.output(graph.graph_copy(other, dict(inputs)))


def needs_gradients(graph: GraphModule, inputs: Sequence[Any]) -> bool:
    """Return True if a graph's call on these inputs may record gradients, or computes derivatives itself.

    It does if gradients are on, or a call of the graph switches them on, and a tensor needs one; if it is called
    within a level of forward-mode differentiation; and if it has a level of torch.func or a call of torch.autograd.
    """
    nodes = list(_calls(graph))
    if forward_ad._current_level >= 0 or any(_differentiates(node) for node in nodes):
        return True
    switched_on = any(node.target in _SWITCHES and node.args[:1] != (False,) for node in nodes)
    tensors = (*inputs, *graph.parameters(), *graph.buffers())
    leaves = any(map(_makes_leaf, nodes))
    requires_grad = leaves or any(getattr(value, "requires_grad", False) for value in tensors)
    return requires_grad and (switched_on or torch.is_grad_enabled())


def _calls(graph: GraphModule) -> Iterator[Node]:
    """Yield the calls in a graph and in the graphs within it."""
    for module in graph.modules():
        if isinstance(module, GraphModule):
            yield from (node for node in module.graph.nodes if node.op in ("call_function", "call_method"))


def _differentiates(node: Node) -> bool:
    name, module = getattr(node.target, "__name__", ""), str(getattr(node.target, "__module__", ""))
    return name in _LEVELS or (module == "torch.autograd" and name in ("grad", "backward"))


def _makes_leaf(node: Node) -> bool:
    """Return True if a call makes a tensor that needs a gradient."""
    sets = node.target == "requires_grad_" and False not in (*node.args[1:2], *node.kwargs.values())
    return sets or bool(node.kwargs.get("requires_grad"))


backend, inductor_pass = PassBackend, InductorPass
