"""The parts of a graph that a pass may match: runs of calls with a kernel, the largest first.

Some calls are left to eager because eager adds in another order than the generator's kernels, and the different
rounding shows in later calls. All names but PRODUCTS are those of :mod:`pytest_passbench.rewrite.normalise`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.first_pass.forms import GraphForm
from pytest_passbench.first_pass.naming import named
from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.ir import HALVES, Trace
from pytest_passbench.fusion.regions import PRODUCTS, called
from pytest_passbench.fusion.schedule import nests
from pytest_passbench.fusion.trace import Recorder, trace
from pytest_passbench.rewrite.normalise import canonical

_FREE = frozenset({
    "transpose", "view", "reshape", "permute", "unsqueeze", "squeeze", "flatten", "unflatten", "chunk", "split",
    "unbind", "expand", "expand_as", "movedim", "contiguous", "narrow", "select", "view_as", "reshape_as", "t",
    "detach", "lift_fresh", "alias", "positive", "dropout", "getattr",
})  # fmt: skip
"""Calls that compute nothing."""
NORMS = frozenset({"layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "_weight_norm"})
IN_ORDER = frozenset({"rms_norm", "_weight_norm"})
"""The norms whose squares a C++ kernel adds in the order of eager."""
HALVES_IN_ORDER = frozenset({"layer_norm"})
"""The norms that a C++ kernel computes in the order of eager in half precision, and near enough in float32."""
REORDERED = (NORMS - IN_ORDER) | {"softmax"}
"""The operators whose sums a C++ kernel adds in another order than eager."""
CANCELLING = PRODUCTS | NORMS | {
    "gelu", "add", "sub", "batch_norm", "lerp", "mse_loss", "interpolate", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean", "sum", "cumsum",
}  # fmt: skip
"""The operators whose terms may cancel, so that an error of an operand becomes a large one of the result."""
DOUBLING = frozenset({"mul", "div", "silu", "exp", "pow"})
"""The operators that can double an error of one unit in the last place. In float16, t = -5 allows one unit."""


@dataclass(frozen=True)
class Part:
    """A run of a form's calls. ``arguments`` enter it from outside, holes too; ``returned`` are used outside."""

    form: GraphForm
    nodes: tuple[Node, ...]
    arguments: tuple[Node, ...]
    returned: tuple[Node, ...]
    names: dict[Node, str]

    @property
    def tensors(self) -> list[Node]:
        """The arguments that are tensors."""
        return [node for node in self.arguments if node not in self.form.literals]

    def trace(self, values: Sequence[Any]) -> Trace:
        """Return the run's calls on values of its arguments, under its names. Raises Unsupported."""
        recorder = Recorder(overwrite=True)

        def run(*items: Any) -> tuple[Any, ...]:
            values_by_node: dict[Node, Any] = dict(zip(self.arguments, items, strict=True))
            for node in self.nodes:
                recorder.name = self.names[node]
                values_by_node[node] = called(node, values_by_node)
            return tuple(values_by_node[node] for node in self.returned)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes that do not fit, which are tried too
            recorded = trace(run, values, recorder=recorder)
        for value, node in zip(recorded.inputs, self.tensors, strict=True):
            value.buffer.name = self.names[node]
        return recorded


def part(form: GraphForm, nodes: Sequence[Node]) -> Part:
    """Return the run of these calls. Raises Unsupported if no kernel does them for the form's first subgraph."""
    inside = set(nodes)
    returned = tuple(node for node in nodes if any(user not in inside for user in node.users))
    if not returned:
        raise Unsupported("a run whose result nobody uses")
    outside = dict.fromkeys(value for node in nodes for value in node.all_input_nodes if value not in inside)
    arguments = sorted(outside, key=lambda value: value in form.literals)  # holes last
    tensors = [value for value in (*returned, *arguments) if value not in form.literals]
    if any(form.values[value][0] is None for value in tensors):
        raise Unsupported("a tuple or a number that is used outside, or comes from there")
    if all(canonical(node).op == "getitem" for node in nodes):
        raise Unsupported("a run of subscripts alone, whose pattern would match too much")
    result = Part(form, tuple(nodes), tuple(arguments), returned, named(form, arguments, nodes))
    nests(result.trace([_value(form, argument) for argument in arguments]))
    return result


def _value(form: GraphForm, argument: Node) -> Any:
    if argument in form.literals:
        return form.literals[argument][form.keys.index(form.subgraphs[0].graph)]
    value = form.values[argument][0]
    assert value is not None
    return torch.empty_strided(value.sizes, value.strides, dtype=value.dtype, device="meta")


def reason(form: GraphForm, node: Node, triton: bool) -> str:
    """Return why a call is left to eager in any run, or "". ``triton`` is True for kernels in Triton."""
    try:
        values = [form.values[value][0] for value in node.all_input_nodes if value not in form.literals]
        if all(value is not None for value in (*values, form.values[node][0])) and node.users:
            part(form, [node])
    except Unsupported as cause:
        if "subscripts" not in str(cause):
            return str(cause).partition("\n")[0]
    return _shows_later(form, node, triton)


def _shows_later(form: GraphForm, node: Node, triton: bool) -> str:
    """Return why a call should be left to eager because of the calls that use its result, or "".

    A long sum that is added in another order than eager's is sometimes rounded to a neighbouring number. In half
    precision t = -5 allows this, but not after a further call whose terms may cancel: a sum, a product, a norm.
    """
    op, values = canonical(node).op, enumerate(form.values[node])
    places = [place for place, value in values if value is not None and reorders(op, value.dtype, triton)]
    if not places:
        return ""
    half = form.dtypes(node, places) & HALVES
    if op == "instance_norm" and half:
        return "instance_norm, whose statistics eager rounds to half precision"
    stated = {getattr(torch, spec.dtype) for subgraph in form.subgraphs for spec in subgraph.inputs}
    front, visited = [(user, bool(half)) for user in node.users], set[tuple[Node, bool]]()
    while front:
        user, rounded = front.pop()
        if (user, rounded) in visited or user.op == "output":
            continue
        visited.add((user, rounded))
        if rounded and canonical(user).op in cancelling(half | stated):
            return f"{op}, since its roundings would show behind {canonical(user).op}"
        rounded = rounded or bool(form.dtypes(user, places) & HALVES)
        front += [(further, rounded) for further in user.users]
    return ""


def reorders(op: str, dtype: torch.dtype, triton: bool) -> bool:
    """Return True if a kernel adds the terms of a call with a result of this dtype in another order than eager."""
    if triton:
        return op in REORDERED | NORMS | {"sum", "mean"}
    return op in REORDERED and not (op in HALVES_IN_ORDER and dtype in HALVES)


def cancelling(dtypes: Set[torch.dtype | None]) -> frozenset[str]:
    """Return the operators whose results show how an operand was rounded, by the dtypes of the graph's values."""
    return CANCELLING | DOUBLING if torch.float16 in dtypes else CANCELLING


def parts(form: GraphForm, reasons: dict[Node, str]) -> Iterator[Part]:
    """Yield the runs without calls that have ``reasons``, those with the most calls that compute first.

    In each run at least one call copies, or computes more than a cast.
    """
    calls = form.operators
    runs = [calls[first:last] for first in range(len(calls)) for last in range(first + 1, len(calls) + 1)]
    for run in sorted(runs, key=lambda run: (*(-x for x in _weight(form, run)), -len(run))):
        if any(_works(form, node) for node in run) and not _excluded(form, run, reasons):
            with contextlib.suppress(Unsupported):
                yield part(form, run)


def _works(form: GraphForm, node: Node) -> bool:
    """Return True for a call that leaves a kernel more to do than a cast."""
    return _copies(form, node) or (_computes(form, node) and canonical(node).op != "to")


def _weight(form: GraphForm, nodes: Sequence[Node]) -> tuple[int, int]:
    """Return how many calls of a run compute, and how many views copy because of where their input lies."""
    return sum(_computes(form, node) for node in nodes), sum(_copies(form, node) for node in nodes)


def _computes(form: GraphForm, node: Node) -> bool:
    call = canonical(node)
    if call.op == "getitem":
        index = call.args["index"]
        items = index if isinstance(index, (tuple, list)) else [index]
        return any(isinstance(x, Node) and x in form.values and form.values[x][0] is not None for x in items)
    return call.op not in _FREE


def _copies(form: GraphForm, node: Node) -> bool:
    call = canonical(node)
    if call.op not in ("reshape", "flatten", "contiguous"):
        return False
    values = form.values[call.args["input"]]
    return not any(value is not None and value.dense(range(len(value.sizes))) for value in values)


def _excluded(form: GraphForm, run: Sequence[Node], reasons: dict[Node, str]) -> bool:
    """Return True if the run, or another one that its pattern may match, has calls that are left to eager."""
    calls, ops = form.operators, [canonical(node).op for node in run]
    names = [canonical(node).op for node in calls]
    places = (calls[i : i + len(run)] for i in range(len(calls)) if names[i : i + len(run)] == ops)
    return any(node in reasons for place in places for node in place)
