"""Apply passes to a graph: each match becomes a call of the pass's kernel wrapper."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from pytest_passbench.core.record import PassReport
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans.launch import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    MAX_DIMENSIONS,
    Argument,
    Form,
    Request,
    Result,
)
from pytest_passbench.plans.values import encode
from pytest_passbench.rewrite.effects import early_users, thread_inplace
from pytest_passbench.rewrite.errors import PassError
from pytest_passbench.rewrite.match import Match, Search, Target, explain, nearness
from pytest_passbench.rewrite.meta import (
    call,
    evaluate,
    fold_metadata,
    metadata_nodes,
    record_values,
    shaped_by_values,
    value_of,
)
from pytest_passbench.rewrite.operators import added_name, covered_names, is_work, operator_names
from pytest_passbench.rewrite.passes import Kernels, Pass
from pytest_passbench.rewrite.pattern import Pattern, prepare
from pytest_passbench.suite import batching
from pytest_passbench.suite.allowlist import METHODS, spelling

_BROKEN_OFF = "torch.compile breaks the graph off at a torch.vmap level; --passbench-pipeline=direct keeps it whole"


@dataclass
class Rewritten:
    """A graph after its passes.

    ``operators`` are the names of the operators before. ``covered`` are those that a kernel replaces. ``places`` are
    the matches: the pass's name, and the names of the nodes that it matched, which are variables of the source.
    ``working`` are the names of the passes with a match that covers work: more than views, casts and dropout in eval
    mode.
    """

    module: GraphModule
    reports: list[PassReport] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    places: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    working: set[str] = field(default_factory=set)

    @property
    def matches(self) -> int:
        """The number of replaced places, over all passes."""
        return sum(report.matches for report in self.reports)


def apply_passes(gm: GraphModule, passes: list[Pass], example_inputs: list[Any], kernels: Kernels) -> Rewritten:
    """Return a graph with passes applied in order, each to the result of the one before, at every match.

    ``gm`` is not changed. Without a match it is also the result. ``example_inputs`` give shapes, dtypes and strides.
    Raises PassError for a pass that cannot be applied.
    """
    patterns = [_prepare(item) for item in passes]
    if batching.is_batched(example_inputs):
        return Rewritten(gm, [PassReport(item.name, miss=_BROKEN_OFF) for item in passes])
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    work = GraphModule(gm, graph)
    thread_inplace(work.graph)
    record_values(work, example_inputs)
    fold_metadata(work)
    target = Target(work)
    result = Rewritten(gm, operators=operator_names(list(target.calls)))
    for item, pattern in zip(passes, patterns, strict=True):
        result.reports.append(_apply(item, pattern, target, kernels, result))
    if result.matches:
        work.graph.lint()
        work.recompile()
        result.module = work
    return result


@lru_cache(maxsize=1024)
def _prepare(item: Pass) -> Pattern:
    """Return the pass's pattern. It is cached, because ``torch.compile`` may hand over several graphs."""
    pattern = prepare(item.name, item.pattern)
    if not isinstance(item.replacement, str):
        parameters = [str(node.target) for node in item.replacement.placeholders]
        unknown = [name for name in parameters if name not in pattern.arguments]
        if unknown:
            raise item.misfit(f"replacement_args takes {', '.join(unknown)}; pattern has no such argument")
    return pattern


def _check_used(item: Pass, match: Match) -> None:
    """Raise PassError if ``replacement_args`` uses an argument that stands for nothing in the match."""
    handed = {str(node.target) for node in item.arguments.placeholders if node.users}
    for node in match.pattern.traced.placeholders:
        if str(node.target) in handed and node not in match.binding:
            how = "used in dead code of pattern only" if node.users else "not used in pattern"
            raise item.misfit(f"argument {node.target} is {how}, so it stands for no value of the graph")


def _apply(item: Pass, pattern: Pattern, target: Target, kernels: Kernels, result: Rewritten) -> PassReport:
    """Replace each match of a pass. Note in ``result`` what that covers, and return the pass's report."""
    report = PassReport(item.name)
    search = Search(pattern, target)
    for place in target.named(pattern.calls[pattern.anchor].op):
        match = search.at(place) if place in target.order else None
        if match is not None:
            _check_used(item, match)
            report.matches += 1
            report.operators += operator_names(match.replaced)
            result.covered += covered_names(target, match.replaced)
            if any(is_work(target, node) for node in match.replaced):
                result.working.add(item.name)
            result.places.append((item.name, tuple(node.name for node in match.nodes)))
            report.computed += _Splice(item, match, target, kernels).done()
            target.refresh()
    if not report.matches:
        report.miss = explain(pattern, target, search.best)
        report.nearness = nearness(pattern, search.best)
    return report


class _Splice:
    """The replacement of a match."""

    def __init__(self, item: Pass, match: Match, target: Target, kernels: Kernels) -> None:
        self.item, self.match, self.target, self.kernels = item, match, target, kernels
        self.graph = target.gm.graph
        self.computed: list[str] = []

    def done(self) -> list[str]:
        """Replace the match, and return the operators that ``replacement_args`` adds to the graph."""
        last, kept_writers = self.match.nodes[-1], self.match.effects.writers
        moved = early_users(self.match.nodes, self.target.order)
        with self.graph.inserting_before(last.next):
            call = self._call(self._arguments())
            results = self._results(call)
            for node, result in results.items():
                node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in kept_writers)
        anchor = last.next
        while anchor.meta.get("passbench_new"):
            del anchor.meta["passbench_new"]
            anchor = anchor.next
        for node in (*kept_writers, *moved):
            anchor.prepend(node)
        for node in reversed(self.match.nodes):
            if node not in kept_writers:
                self.graph.erase_node(node)
        return self.computed

    def _arguments(self) -> tuple[Any, ...]:
        """Return what ``replacement_args`` returns for the match: nodes of the graph and literals."""
        pattern, traced = self.match.pattern, self.item.arguments
        by_name = dict(zip(pattern.arguments, pattern.traced.placeholders, strict=True))
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
        return tuple(_substitute(item, values) for item in traced.result)

    def _computed(self, node: Node, values: dict[Node, Any]) -> Node:
        """Add an operator of ``replacement_args`` to the graph, and return it. Raises PassError for no operator."""
        name = str(getattr(node.target, "__name__", node.target))
        unknown = node.target not in METHODS if node.op == "call_method" else spelling(node.target) is None
        if unknown or batching.is_batching(node):
            raise PassError(self.item.name, f"replacement_args calls {name}, which is not an operator of a graph")
        args, kwargs = _substitute(node.args, values), _substitute(dict(node.kwargs), values)
        new = self.graph.create_node(node.op, node.target, args, kwargs)
        meta = call(node, lambda n: _value(n, values))
        new.meta.update(passbench=meta, passbench_new=True)
        self.computed.append(added_name(name, meta, [_value(n, values) for n in node.all_input_nodes]))
        return new

    def _call(self, args: tuple[Any, ...]) -> Node:
        """Add the call of the kernel to the graph, and return it."""
        traced = self.match.pattern.traced
        sequence = isinstance(traced.result, (tuple, list))
        tensors, request = self._request(args, self._request_results(), sequence)
        kernel = self.kernels.kernel(request)
        node = self.graph.create_node("call_function", kernel, tensors, {}, name=identifier(self.item.name))
        bound = [self.match.binding.get(out) if isinstance(out, Node) else out for out in traced.outputs]
        values = tuple(value_of(b) if isinstance(b, Node) else b for b in bound)
        node.meta.update(passbench=values if sequence else values[0], passbench_new=True)
        node.meta["passbench_pass"] = self.item.name
        return node

    def _request_results(self) -> tuple[Result | None, ...]:
        """Return the dtype and shape that each value of the kernel must have, or None if it may have any.

        That is a value that nothing uses, one that is copied into a tensor, which fits it in, and one whose shape
        depends on more than the shapes of the match's tensors.
        """
        pattern, inside = self.match.pattern, set(self.match.nodes)
        free = any(shaped_by_values(node) for node in inside)
        results: list[Result | None] = []
        for out in pattern.traced.outputs:
            node = self.match.binding[out] if isinstance(out, Node) and out in pattern.calls else None
            if free or node is None or node in self.match.effects.copy_back or inside.issuperset(node.users):
                results.append(None)
            else:
                results.append(_result(node))
        return tuple(results)

    def _request(
        self, args: tuple[Any, ...], results: tuple[Result | None, ...], sequence: bool
    ) -> tuple[tuple[Node, ...], Request]:
        """Return the tensors that the kernel is called with, each once, and the request for the kernel."""
        tensors: dict[Node, Argument] = {}

        def reference(value: Any) -> Any:
            if not isinstance(value, Node):
                return None
            tensor = value_of(value)
            if isinstance(tensor, (tuple, list)):
                return {"tuple": [reference(self._item(value, i, item)) for i, item in enumerate(tensor)]}
            if not isinstance(tensor, torch.Tensor):
                return encode(tensor)
            tensors.setdefault(value, _argument(tensor))
            return {"tensor": list(tensors).index(value)}

        try:
            arguments = tuple(encode(value, reference) for value in args)
        except Rejected as error:
            raise PassError(self.item.name, f"replacement_args returns {error}, which no kernel can get") from error
        request = Request(self.item.name, arguments, tuple(tensors.values()), len(results), sequence, results)
        return tuple(tensors), request

    def _results(self, call: Node) -> dict[Node, Node]:
        """Return the new node for each returned node of the match."""
        results: dict[Node, Node] = {}
        traced = self.match.pattern.traced
        for i, out in enumerate(traced.outputs):
            if not isinstance(out, Node) or out not in self.match.pattern.calls:
                continue
            node = self.match.binding[out]
            new = call if not isinstance(traced.result, (tuple, list)) else self._item(call, i, value_of(node))
            base = self.match.effects.copy_back.get(node)
            results.setdefault(node, self._copy_back(base, new) if base is not None else new)
        return results

    def _item(self, call: Node, i: int, value: Any) -> Node:
        new = self.graph.create_node("call_function", operator.getitem, (call, i), {})
        new.meta.update(passbench=value, passbench_new=True)
        return new

    def _copy_back(self, base: Node, new: Node) -> Node:
        copy = self.graph.create_node("call_method", "copy_", (base, new), {})
        copy.meta.update(passbench=value_of(base), passbench_writes=[base], passbench_new=True)
        return copy


def _value(node: Node, values: dict[Node, Any]) -> Any:
    """Return the recorded value of a node of ``replacement_args``. Raises KeyError if it stands for no value."""
    value = values[node]
    return value_of(value) if isinstance(value, Node) else value


def _substitute(value: Any, values: dict[Node, Any]) -> Any:
    return map_arg(value, lambda node: values[node])


def identifier(name: str) -> str:
    """Return the name of a pass as an identifier."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _result(node: Node) -> Result | None:
    """Return the dtype and shape of a node's value, or None if that is no tensor that a plan could return."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or batching.is_batched(value) or value.dim() > MAX_DIMENSIONS:
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    return Result(dtype, tuple(value.shape)) if dtype in ITEM_BYTES else None


def _argument(value: torch.Tensor) -> Argument:
    """Return a tensor's layout in memory, as far as a wrapper can see it."""
    dtype = str(value.dtype).removeprefix("torch.")
    misaligned = value.storage_offset() * value.element_size() % ALIGNMENT_BYTES
    return Argument(Form(dtype, tuple(value.shape), tuple(value.stride())), str(value.device), misaligned)
