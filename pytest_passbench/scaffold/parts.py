"""The part of a graph that a pass matches: the longest run of calls that a plain kernel can be written for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from pytest_passbench.scaffold.emitter import Unsupported
from pytest_passbench.scaffold.forms import Form, inputs_of, outputs_of
from pytest_passbench.scaffold.lowering.lower import Lowering
from pytest_passbench.scaffold.lowering.wrapper import ALIASES, VIEWS
from pytest_passbench.scaffold.text import named


@dataclass(frozen=True)
class Part:
    """A run of a form's calls with what its pass needs.

    ``arguments`` are the values from outside, holes too. ``left`` are the calls outside the run.
    """

    form: Form
    nodes: tuple[Node, ...]
    arguments: tuple[Node, ...]
    returned: tuple[Node, ...]
    names: dict[Node, str]
    lowered: Lowering
    left: tuple[Node, ...]
    reasons: dict[Node, str] = field(default_factory=dict)


def part(form: Form, nodes: Sequence[Node], lowering: type[Lowering] = Lowering) -> Part:
    """Return the run of these calls, with its wrapper and kernels. Raises Unsupported if a call has none."""
    returned = tuple(outputs_of(list(nodes)))
    for node in nodes:
        escapes = node in returned
        if escapes and form.values[node][0].dtype is None:
            raise Unsupported("a tuple or a number that is used outside")
        call = form.call(node)
        if call.inplace and call.op == "setitem":
            raise Unsupported("an assignment into a tensor")
    if all(form.call(node).op == "getitem" for node in nodes):
        raise Unsupported("only subscripts, a pattern of which would match too much")
    if not returned:
        raise Unsupported("a run whose result nobody uses")
    arguments = inputs_of(list(nodes))
    if any(value not in form.literals and form.values[value][0].dtype is None for value in arguments):
        raise Unsupported("a tuple or a number from outside")
    arguments.sort(key=lambda value: value in form.literals)  # holes last
    names = named(form, arguments, nodes)
    lowered = lowering(form, list(nodes), returned, names)
    lowered.run()
    inside = set(nodes)
    left = tuple(node for node in form.operators if node not in inside)
    return Part(form, tuple(nodes), tuple(arguments), returned, names, lowered, left)


def weight(form: Form, nodes: Sequence[Node]) -> int:
    """Return how many calls of a run do work, so that views and aliases do not count."""
    return sum(_works(form, node) for node in nodes)


def _works(form: Form, node: Node) -> bool:
    call = form.call(node)
    if call.op == "getitem":
        return any(
            isinstance(item, Node) and item in form.values and form.values[item][0].dtype is not None
            for item in call.args["index"]
        )
    return call.op not in VIEWS | ALIASES | {"dropout", "getattr"}


_PRODUCTS = frozenset({
    "linear", "matmul", "bmm", "mm", "baddbmm", "addmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "einsum",
    "scaled_dot_product_attention", "cdist",
})  # fmt: skip
_ROUNDED_ELSEWHERE = _PRODUCTS | {
    "layer_norm", "group_norm", "instance_norm", "rms_norm", "softmax", "normalize", "_weight_norm",
}  # fmt: skip


_CANCELLING = _ROUNDED_ELSEWHERE - {"softmax"} | {"gelu", "add", "sub", "batch_norm", "lerp", "mse_loss"}


def shows_later(form: Form, node: Node) -> str:
    """Return why a call should be left to eager because of what comes behind it, or nothing.

    A long sum that is added in another order than eager's falls to the other side of a rounding now and then. In half
    precision this is within what t = -5 allows. It is not behind a call whose terms cancel: a sum, a product, a norm.
    """
    half, op = set(form.dtypes(node)) & {torch.float16, torch.bfloat16}, form.call(node).op
    if op not in _ROUNDED_ELSEWHERE:
        return ""
    if op == "instance_norm" and half:
        return "instance_norm, whose statistics eager rounds to half precision"
    cancelling = _CANCELLING
    if any(spec.dtype == "float16" for spec in form.columns[0].inputs) or torch.float16 in half:
        # t = -5 allows one unit in the last place there, and a product makes two of it
        cancelling = cancelling | {"mul", "div", "silu", "exp", "pow"}
    front, seen = [(user, bool(half)) for user in node.users], set[tuple[Node, bool]]()
    while front:
        user, rounded = front.pop()
        if (user, rounded) in seen or user.op == "output":
            continue
        seen.add((user, rounded))
        if form.call(user).op in (cancelling if rounded else {"batch_norm"} if op in _PRODUCTS else ()):
            return f"{op}, since its roundings would show behind {form.call(user).op}"
        rounded = rounded or bool(set(form.dtypes(user)) & {torch.float16, torch.bfloat16})
        front += [(further, rounded) for further in user.users]
    return ""


def largest(form: Form, lowering: type[Lowering] = Lowering) -> tuple[Part | None, dict[Node, str]]:
    """Return the run with the most calls that do work, and why each call outside of any run has no kernel."""
    calls = form.operators
    reasons: dict[Node, str] = {}
    for node in calls:
        if reason_ := shows_later(form, node):
            reasons[node] = reason_
            continue
        try:
            part(form, [node], lowering)
        except Unsupported as reason:
            if "outside" not in str(reason) and not str(reason).startswith("only "):
                reasons[node] = str(reason)
    best: Part | None = None
    score = (0, 0)
    for first in range(len(calls)):
        for last in range(len(calls), first, -1):
            run = calls[first:last]
            if any(node in reasons for node in run) or _also_matches(form, run, reasons):
                continue
            found = (weight(form, run), len(run))
            if found <= score or not found[0]:
                break
            try:
                best, score = part(form, run, lowering), found
                break
            except Unsupported:
                continue
    return (None if best is None else replace(best, reasons=reasons)), reasons


def _also_matches(form: Form, run: Sequence[Node], reasons: dict[Node, str]) -> bool:
    """Return True if the run's pattern may match calls that are to be left to eager."""
    calls, wanted = form.operators, [form.call(node).op for node in run]
    names = [form.call(node).op for node in calls]
    places = (calls[i : i + len(run)] for i in range(len(calls)) if names[i : i + len(run)] == wanted)
    return any(node in reasons for place in places for node in place)
