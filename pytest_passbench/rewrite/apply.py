"""Apply passes to a graph: each match, or region, becomes a call of the pass's kernel wrapper.

A match is a place where a pattern occurs. Region passes choose regions. The graph alone decides what the kernel of a
region gets and returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from pytest_passbench.core.record import PassReport
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.plans.launch import MAX_ARGUMENTS
from pytest_passbench.plans.regions import graph_text, is_described
from pytest_passbench.rewrite.decomposed import decomposed
from pytest_passbench.rewrite.effects import hazards, thread_inplace
from pytest_passbench.rewrite.match import Match, Search, Target, explain, nearness
from pytest_passbench.rewrite.meta import (
    call,
    evaluate,
    fold_metadata,
    metadata_nodes,
    planned_form,
    record_values,
    storages,
    value_of,
)
from pytest_passbench.rewrite.passes import AnyPass, Kernel, Kernels, LeftToEager, Pass, PassError, Pattern, prepare
from pytest_passbench.rewrite.splice import Splice
from pytest_passbench.suite import batching
from pytest_passbench.suite.allowlist import METHODS, spelling
from pytest_passbench.suite.opnames import is_metadata, operator_sequence

_BROKEN_OFF = "torch.compile breaks the graph off at a torch.vmap level; --passbench-pipeline=direct keeps it whole"
_DROPOUTS = frozenset({
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
})  # fmt: skip
_CASTS = frozenset({"to", "type_as"})  # the canonical names of ``x.float()``, ``x.type(y)`` and the like


@dataclass
class Rewritten:
    """A graph after its passes.

    ``operators`` are the names of the operators before the passes. ``places`` are the matches: the pass's name, and
    the names of the nodes that it matched, which are variables of the source. ``working`` are the names of the passes
    with a match that covers work: more than views, casts and dropout in eval mode.
    """

    module: GraphModule
    reports: list[PassReport] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    places: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    working: set[str] = field(default_factory=set)

    @property
    def matches(self) -> int:
        """The number of replaced places, over all passes."""
        return sum(report.matches for report in self.reports)

    @property
    def covered(self) -> list[str]:
        """The operators that kernels replace, by pass."""
        return [name for report in self.reports for name in report.operators]


def apply_passes(
    gm: GraphModule, passes: Sequence[AnyPass], example_inputs: list[Any], kernels: Kernels
) -> Rewritten:
    """Return a graph with passes applied in order, each to the result of the one before, at every match.

    ``gm`` is not changed. Without a match it is also the result. If a pass has TorchInductor's form, all passes are
    matched with the graph after TorchInductor's decompositions. ``example_inputs`` give shapes, dtypes and strides.
    Raises PassError for a pass that cannot be applied.
    """
    patterns = [prepare(item) if isinstance(item, Pass) else None for item in passes]
    if batching.is_batched(example_inputs):
        return Rewritten(gm, [PassReport(item.name, miss=_BROKEN_OFF, kind=item.kind) for item in passes])
    is_decomposed = any(isinstance(item, Pass) and item.decomposed for item in passes)
    inner = decomposed(gm, example_inputs) if is_decomposed else gm
    graph = Graph()
    graph.output(graph.graph_copy(inner.graph, {}))
    work = GraphModule(inner, graph)
    thread_inplace(work.graph)
    record_values(work, example_inputs)
    fold_metadata(work)
    target = Target(work)
    result = Rewritten(gm, operators=list(operator_sequence(target.calls)))
    for item, pattern in zip(passes, patterns, strict=True):
        if isinstance(item, Pass) and pattern is not None:
            result.reports.append(_apply(item, pattern, target, kernels, result))
        else:
            result.reports.append(_apply_regions(item.name, target, kernels, result))
    if result.matches:
        work.graph.lint()
        work.recompile()
        result.module = work
    return result


def _check_used(item: Pass, match: Match) -> None:
    """Raise PassError if ``replacement_args`` uses an argument that stands for nothing in the match."""
    handed = {str(node.target) for node in item.arguments.placeholders if node.users}
    for node in match.pattern.traced.placeholders:
        if str(node.target) in handed and node not in match.binding:
            dead = "used only in code that the pattern's result does not depend on"
            how = dead if node.users else "not used in pattern"
            raise item.misfit(f"argument {node.target} is {how}, so it stands for no value of the graph")


def _apply(item: Pass, pattern: Pattern, target: Target, kernels: Kernels, result: Rewritten) -> PassReport:
    """Replace each match of a pass. Note in ``result`` what that covers, and return the pass's report."""
    report = PassReport(item.name)
    search = Search(pattern, target)
    for place in target.named(pattern.calls[pattern.anchor].op):
        match = search.at(place) if place in target.order else None
        if match is not None:
            _check_used(item, match)
            splice = _MatchSplice(item, match, target, kernels)
            _count(report, splice, result)
            splice.done()
            report.computed += splice.computed
            target.refresh()
    if not report.matches:
        report.miss = explain(pattern, target, search.best)
        report.nearness = nearness(pattern, search.best)
    return report


def _count(report: PassReport, splice: Splice, result: Rewritten) -> None:
    """Note a match of a pass, which is about to be replaced."""
    report.matches += 1
    report.operators += operator_sequence(splice.replaced)
    if any(_is_work(splice.target, node) for node in splice.replaced):
        result.working.add(report.name)
    result.places.append((report.name, tuple(node.name for node in splice.nodes)))


def _is_work(target: Target, node: Node) -> bool:
    """Return True if a node computes or moves elements: it is no view, no cast and no dropout in eval mode."""
    node_call = target.calls[node]
    if is_metadata(node) or node_call.op in _CASTS:
        return False
    if node_call.op in _DROPOUTS and node_call.args.get("training") is False:
        return False
    return node_call.inplace or not _is_view(value_of(node), [value_of(source) for source in node.all_input_nodes])


def _is_view(value: Any, sources: Sequence[Any]) -> bool:
    """Return True if a value has tensors, and all of them lie in the memory of ``sources``."""
    memory = storages(value)
    return bool(memory) and memory <= storages(tuple(sources))


def _apply_regions(name: str, target: Target, kernels: Kernels, result: Rewritten) -> PassReport:
    """Replace the regions that a pass has a kernel for. Note in ``result`` what that covers. Return its report."""
    report = PassReport(name, kind="region")
    for region in replace_regions(name, target, kernels, report.left):
        _count(report, region, result)
        region.done()
        target.refresh()
    if not report.matches:
        report.miss = report.left[0] if report.left else "it supports no operator of the graph"
        report.nearness = float(bool(report.left))
    return report


class _MatchSplice(Splice):
    """The replacement of a match."""

    def __init__(self, item: Pass, match: Match, target: Target, kernels: Kernels) -> None:
        super().__init__(item.name, match.nodes, match.effects, target, kernels)
        self.item, self.match = item, match
        self.computed: list[str] = []  # the operators that ``replacement_args`` adds to the graph

    def _arguments(self) -> tuple[Any, ...]:
        """Return what ``replacement_args`` returns for the match: nodes of the graph and literals."""
        pattern, traced = self.match.pattern, self.item.arguments
        by_name = {str(node.target): node for node in pattern.traced.placeholders}
        values: dict[Node, Any] = {}
        for node in traced.placeholders:
            if by_name[str(node.target)] in self.match.binding:
                values[node] = self.match.binding[by_name[str(node.target)]]
        metadata = metadata_nodes(traced.graph)
        for node in traced.graph.nodes:
            if node in metadata:
                values[node] = evaluate(node, values, metadata)
            elif node.op in ("call_function", "call_method"):
                values[node] = self._computed(node, values)
        return tuple(map_arg(item, values.__getitem__) for item in traced.result)

    def _computed(self, node: Node, values: dict[Node, Any]) -> Node:
        """Add a call in ``replacement_args`` to the graph. Raises PassError if it does not call an operator."""
        name = str(getattr(node.target, "__name__", node.target))
        unknown = node.target not in METHODS if node.op == "call_method" else spelling(node.target) is None
        if unknown or batching.is_batching(node):
            raise PassError(self.item.name, f"replacement_args calls {name}, which is not an operator of a graph")
        args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        new = self.graph.create_node(node.op, node.target, args, kwargs)
        meta = call(node, lambda n: _value(n, values))
        new.meta.update(passbench=meta, passbench_new=True)
        self.computed.append(_added_name(name, meta, [_value(n, values) for n in node.all_input_nodes]))
        return new

    def _results(self) -> dict[Node, Node]:
        """Add the call of the kernel, and return the new node for each returned node of the match."""
        calls, traced, binding = self.match.pattern.calls, self.match.pattern.traced, self.match.binding
        sequence = isinstance(traced.result, (tuple, list))
        bound = [binding.get(out) if isinstance(out, Node) else out for out in traced.outputs]
        nodes = [binding[out] if isinstance(out, Node) and out in calls else None for out in traced.outputs]
        request, tensors = self.request(self._arguments(), nodes, sequence)
        values = tuple(value_of(b) if isinstance(b, Node) else b for b in bound)
        value = values if sequence else values[0]
        return self.call(self.kernels.kernel(request), tensors, value, nodes, sequence)


def _value(node: Node, values: dict[Node, Any]) -> Any:
    """Return the recorded value of a node of ``replacement_args``. Raises KeyError if it stands for no value."""
    value = values[node]
    return value_of(value) if isinstance(value, Node) else value


def _added_name(name: str, value: Any, sources: Sequence[Any]) -> str:
    """Return the name of an operator that ``replacement_args`` adds, with what it computes: a cast, or an index."""
    if _is_view(value, sources) or not isinstance(value, torch.Tensor):
        return name
    before = next((source for source in sources if isinstance(source, torch.Tensor)), value)
    if name in _CASTS and before.dtype != value.dtype:
        return f"{name} (a cast)"
    return f"{name} (an index that is not a slice)" if name == "getitem" else name


def replace_regions(name: str, target: Target, kernels: Kernels, left: list[str]) -> Iterator[RegionSplice]:
    """Yield the regions of a graph that a pass called ``name`` has a kernel for, each to be replaced before the next.

    ``left`` gets the reason for each region that is left to eager. Raises PassError if the pass fails.
    """
    try:
        graph, values = _described(target)
        text = graph_text(graph, values.get, names=True)
    except Rejected as error:
        left.append(str(error))
        return
    nodes = {node.name: node for node in target.order}
    for names in kernels.regions(name, text):
        try:
            yield RegionSplice(name, [nodes[each] for each in names], target, kernels)
        except (LeftToEager, Rejected) as error:
            left.append(f"{names[0]}{f' to {names[-1]}' if len(names) > 1 else ''}: {error}")


def _described(target: Target) -> tuple[Graph, dict[Node, object]]:
    """Return a copy of a graph with a stand-in for each call that data cannot state, and the values of its nodes."""
    graph, copies, values = Graph(), dict[Node, Node](), dict[Node, object]()
    for node in target.order:
        if node.op in ("placeholder", "output") or (node in target.calls and is_described(node)):
            copy = graph.node_copy(node, copies.__getitem__)
        else:
            inputs = tuple(copies[source] for source in node.all_input_nodes)
            copy = graph.create_node("call_function", opaque_call, inputs, name=node.name)
        copies[node], values[copy] = copy, value_of(node)
    return graph, values


class RegionSplice(Splice):
    """The replacement of a region by its kernel.

    The kernel's arguments are the values from outside that the region uses, in the order of their first use. The
    kernel returns the values that nodes outside use, in graph order.
    """

    def __init__(self, name: str, nodes: list[Node], target: Target, kernels: Kernels) -> None:
        """Ask for the kernel. Raises LeftToEager or Rejected if there is none, PassError if the pass fails."""
        inside = set(nodes)
        ordered = tuple(sorted(nodes, key=target.order.__getitem__))
        self.outputs = tuple(node for node in ordered if not inside.issuperset(node.users))
        self.inputs = tuple(dict.fromkeys(s for node in ordered for s in node.all_input_nodes if s not in inside))
        if not any(_is_work(target, node) for node in ordered):
            raise LeftToEager("it only moves or describes data")
        effects = hazards(ordered, set(self.outputs), target.order)
        if isinstance(effects, str):
            raise LeftToEager(effects)
        super().__init__(name, ordered, effects, target, kernels)
        self._check()
        request, _tensors = self.request(self.inputs, self.outputs, sequence=True)
        self.kernel: Kernel = kernels.kernel(replace(request, region=self._text()))

    def _check(self) -> None:
        """Raise LeftToEager unless all inputs and results are tensors that a plan can have, and a result is used."""
        for what, nodes in (("input", self.inputs), ("result", self.outputs)):
            if len(nodes) > MAX_ARGUMENTS:
                raise LeftToEager(f"more than {MAX_ARGUMENTS} {what}s")
            for node in nodes:
                if planned_form(value_of(node)) is None:
                    raise LeftToEager(f"the {what} {node.name} is no tensor that a kernel takes")
        if not self.outputs:
            raise LeftToEager("nothing uses its results")

    def _text(self) -> str:
        """Return the region as the text of a graph of its own, without names, so equal regions have equal texts."""
        graph, copies = Graph(), dict[Node, Node]()
        for number, source in enumerate(self.inputs):
            copies[source] = graph.placeholder(f"x{number}")
        for node in self.nodes:
            args, kwargs = map_arg((node.args, node.kwargs), copies.__getitem__)
            copies[node] = graph.create_node(node.op, node.target, args, kwargs)
        graph.output(tuple(copies[node] for node in self.outputs))
        values = {copy: value_of(node) for node, copy in copies.items()}
        return graph_text(graph, values.get, names=False)

    def _results(self) -> dict[Node, Node]:
        value = tuple(value_of(node) for node in self.outputs)
        return self.call(self.kernel, self.inputs, value, self.outputs, sequence=True)
