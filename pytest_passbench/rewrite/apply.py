"""Put passes into a graph: every match becomes one call of the pass's kernel wrapper."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ..report.record import PassReport
from .errors import PassError
from .explain import explain
from .load import Pass
from .match import Match, Search, Target
from .meta import evaluate, fold_metadata, metadata_nodes, record_values, value_of
from .operators import covered_names, operator_names
from .pattern import Pattern, prepare
from .trace import Traced, parameters, thread_inplace, trace


@dataclass
class Rewritten:
    """A graph after its passes. ``operators`` were in it before, ``covered`` are those that a kernel now
    does.
    """

    module: GraphModule
    reports: list[PassReport] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)

    @property
    def matches(self) -> int:
        """How many places were replaced, all passes together."""
        return sum(report.matches for report in self.reports)


@dataclass(frozen=True)
class _Prepared:
    """A pass whose pattern is traced; ``replacement_args`` is traced once a place matches."""

    item: Pass
    pattern: Pattern
    names: tuple[str, ...]

    @cached_property
    def arguments(self) -> Traced:
        """The traced ``replacement_args``. Raises PassError where it cannot be."""
        name = self.item.name
        traced = trace(name, "replacement_args", self.item.replacement_args, list(self.names))
        if not isinstance(traced.result, (tuple, list)):
            raise PassError(name, "replacement_args must return a tuple of the kernel wrapper's arguments")
        _check_used(name, self.pattern, traced)
        return traced


def apply_passes(gm: GraphModule, passes: list[Pass], example_inputs: list[Any]) -> Rewritten:
    """Apply passes in order, each on the result of the former, at every place that matches.

    ``gm`` itself stays as it is; without a match it is also the result. ``example_inputs`` give shapes,
    dtypes and strides; their values are not read. Raises PassError where a pass cannot be traced.
    """
    prepared = [_prepare(item) for item in passes]
    work = _copy(gm)
    thread_inplace(work.graph)
    record_values(work, example_inputs)
    fold_metadata(work)
    target = Target(work)
    result = Rewritten(gm, operators=operator_names(list(target.calls)))
    for item in prepared:
        report, covered = _apply(item, target)
        result.reports.append(report)
        result.covered += covered
    if result.matches:
        work.graph.lint()
        work.recompile()
        result.module = work
    return result


@lru_cache(maxsize=1024)
def _prepare(item: Pass) -> _Prepared:
    """Kept, since ``torch.compile`` may hand over several graphs, and one process may build several subgraphs."""
    pattern = prepare(item.name, item.pattern)
    try:
        wanted = parameters(item.replacement_args)
    except (TypeError, ValueError) as error:
        raise PassError(item.name, f"replacement_args: {error}") from error
    unknown = [name for name in wanted if name not in pattern.arguments]
    if unknown:
        raise PassError(item.name, f"replacement_args takes {', '.join(unknown)}; pattern has no such argument")
    return _Prepared(item, pattern, tuple(wanted))


def _check_used(name: str, pattern: Pattern, arguments: Traced) -> None:
    handed = {node.name for node in arguments.placeholders if node.users}
    loose = [n.name for n in pattern.traced.placeholders if not n.users and n.name in handed]
    if loose:
        raise PassError(name, f"argument {loose[0]} is not used in pattern, so it stands for no value of the graph")


def _copy(gm: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return GraphModule(gm, graph)


def _apply(item: _Prepared, target: Target) -> tuple[PassReport, list[str]]:
    report, covered = PassReport(item.item.name), list[str]()
    search = Search(item.pattern, target)
    for place in target.named(item.pattern.calls[item.pattern.anchor].op):
        match = search.at(place) if place in target.order else None
        if match is not None:
            report.matches += 1
            report.operators += operator_names(list(match.nodes))
            covered += covered_names(target, list(match.nodes))
            report.computed += _Splice(item, match, target).done()
            target.refresh()
    if not report.matches:
        report.miss = explain(item.pattern, target, search.best)
    return report, covered


class _Splice:
    """Replaces one match."""

    def __init__(self, item: _Prepared, match: Match, target: Target) -> None:
        self.item, self.match, self.target = item, match, target
        self.graph = target.gm.graph
        self.computed: list[str] = []

    def done(self) -> list[str]:
        """Do it; returns the operators that ``replacement_args`` itself put into the graph."""
        moved = self._early_users()
        last = self.match.nodes[-1]
        with self.graph.inserting_before(last.next):
            call = self._call(self._arguments())
            results = self._results(call)
            for node, result in results.items():
                node.replace_all_uses_with(result)
        anchor = last.next
        while anchor.meta.get("passbench_new"):
            del anchor.meta["passbench_new"]
            anchor = anchor.next
        for node in moved:
            anchor.prepend(node)
        for node in reversed(self.match.nodes):
            self.graph.erase_node(node)
        return self.computed

    def _early_users(self) -> list[Node]:
        """What uses a result before the last operator of the match, and what depends on that, in order."""
        matched, order = set(self.match.nodes), self.target.order
        dependent: set[Node] = set()
        for node in list(order)[order[self.match.nodes[0]] : order[self.match.nodes[-1]]]:
            inputs = set(node.all_input_nodes)
            if node not in matched and (inputs & matched or inputs & dependent):
                dependent.add(node)
        return sorted(dependent, key=order.__getitem__)

    def _arguments(self) -> tuple[Any, ...]:
        pattern, traced = self.match.pattern, self.item.arguments
        by_name = dict(zip(pattern.arguments, pattern.traced.placeholders, strict=True))
        values: dict[Node, Any] = {}
        for name, node in zip(self.item.names, traced.placeholders, strict=True):
            if by_name[name] in self.match.binding:
                values[node] = self.match.binding[by_name[name]]
        metadata = metadata_nodes(traced.graph)
        for node in traced.graph.nodes:
            if node in metadata:
                values[node] = evaluate(node, values)
            elif node.op in ("call_function", "call_method"):
                values[node] = self._computed(node, values)
        return tuple(_substitute(item, values) for item in traced.result)

    def _computed(self, node: Node, values: dict[Node, Any]) -> Node:
        args, kwargs = _substitute(node.args, values), _substitute(dict(node.kwargs), values)
        new = self.graph.create_node(node.op, node.target, args, kwargs)
        meta = evaluate(node, values)
        new.meta.update(passbench=meta, passbench_new=True)
        self.computed.append(str(getattr(node.target, "__name__", node.target)))
        return new

    def _call(self, args: tuple[Any, ...]) -> Node:
        outputs = self.match.pattern.traced.outputs
        single = not isinstance(self.match.pattern.traced.result, (tuple, list))
        function = callee(self.item.item, None if single else len(outputs))
        node = self.graph.create_node("call_function", function, args, {}, name=_identifier(self.item.item.name))
        bound = [self.match.binding.get(out) if isinstance(out, Node) else out for out in outputs]
        values = tuple(value_of(b) if isinstance(b, Node) else b for b in bound)
        node.meta.update(passbench=values[0] if single else values, passbench_new=True)
        node.meta["passbench_pass"] = self.item.item.name
        return node

    def _results(self, call: Node) -> dict[Node, Node]:
        """What now stands for each returned node of the match."""
        results: dict[Node, Node] = {}
        traced = self.match.pattern.traced
        for i, out in enumerate(traced.outputs):
            if not isinstance(out, Node) or out not in self.match.pattern.calls:
                continue
            node = self.match.binding[out]
            new = call if not isinstance(traced.result, (tuple, list)) else self._item(call, i, node)
            base = self.match.effects.copy_back.get(node)
            results.setdefault(node, self._copy_back(base, new) if base is not None else new)
        return results

    def _item(self, call: Node, i: int, node: Node) -> Node:
        new = self.graph.create_node("call_function", operator.getitem, (call, i), {})
        new.meta.update(passbench=value_of(node), passbench_new=True)
        return new

    def _copy_back(self, base: Node, new: Node) -> Node:
        copy = self.graph.create_node("call_method", "copy_", (base, new), {})
        copy.meta.update(passbench=value_of(base), passbench_writes=[base], passbench_new=True)
        return copy


def _substitute(value: Any, values: dict[Node, Any]) -> Any:
    return map_arg(value, lambda node: values[node])


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def callee(item: Pass, count: int | None) -> Callable[..., Any]:
    """The kernel wrapper as a graph can call it; with ``count``, one that returns that many values as a
    sequence.
    """
    wrapper = item.wrapper
    if count is None and isinstance(wrapper, types.FunctionType):
        return wrapper

    def call(*args: Any) -> Any:
        result = wrapper(*args)
        if count is None:
            return result
        if isinstance(result, torch.Tensor) and count == 1:
            return (result,)
        if not isinstance(result, (tuple, list)) or len(result) != count:
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
            raise RuntimeError(f"pass {item.name}: the kernel wrapper returned {got}, the pattern returns {count}")
        return result

    call.__name__ = call.__qualname__ = _identifier(item.name)
    return call
