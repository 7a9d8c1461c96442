"""The part of a graph that a pass matches: the longest run of calls that a plain kernel can be written for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from pytest_passbench.scaffold.emitter import NoPlainKernel, OnlyViews
from pytest_passbench.scaffold.forms import GraphForm
from pytest_passbench.scaffold.lowering.lower import CallLowering
from pytest_passbench.scaffold.lowering.wrapper import ALIASES, VIEWS
from pytest_passbench.scaffold.roundings import shows_later
from pytest_passbench.scaffold.text import named


@dataclass(frozen=True)
class Part:
    """A run of a form's calls with what its pass needs.

    ``arguments`` are the values from outside, holes too. ``left`` are the calls outside the run.
    """

    form: GraphForm
    nodes: tuple[Node, ...]
    arguments: tuple[Node, ...]
    returned: tuple[Node, ...]
    names: dict[Node, str]
    lowered: CallLowering
    left: tuple[Node, ...]
    reasons: dict[Node, str] = field(default_factory=dict)

    @property
    def refused(self) -> list[tuple[str, str]]:
        """The dtypes that the kernels do not take, as pairs of Python expressions that have to be equal."""
        first: dict[tuple[torch.dtype | None, ...], Node] = {}
        pairs = []
        for value in self.arguments:
            if value not in self.form.literals:
                dtypes = self.form.dtypes(value)
                like = first.setdefault(dtypes, value)
                expected = str(dtypes[0]) if len(set(dtypes)) == 1 else f"{self.names[like]}.dtype"
                pairs.append((f"{self.names[value]}.dtype", expected))
        return [pair for pair in pairs if pair[0] != pair[1]]


def part(form: GraphForm, nodes: Sequence[Node], lowering: type[CallLowering] = CallLowering) -> Part:
    """Return the run of these calls, with its wrapper and kernels. Raises NoPlainKernel if it cannot be a pass."""
    returned = _returned(nodes)
    if not returned:
        raise NoPlainKernel("a run whose result nobody uses")
    if any(form.values[node][0].dtype is None for node in returned):
        raise NoPlainKernel("a tuple or a number that is used outside")
    if all(form.call(node).op == "getitem" for node in nodes):
        raise OnlyViews("only subscripts, a pattern of which would match too much")
    arguments = _arguments(nodes)
    if any(value not in form.literals and form.values[value][0].dtype is None for value in arguments):
        raise NoPlainKernel("a tuple or a number from outside")
    arguments.sort(key=lambda value: value in form.literals)  # holes last
    names = named(form, arguments, nodes)
    lowered = lowering(form, nodes, returned, names)
    lowered.run()
    inside = set(nodes)
    left = tuple(node for node in form.operators if node not in inside)
    return Part(form, tuple(nodes), tuple(arguments), returned, names, lowered, left)


def _arguments(nodes: Sequence[Node]) -> list[Node]:
    """Return the values from outside that ``nodes`` use, in order of use."""
    inside = set(nodes)
    return list(dict.fromkeys(value for node in nodes for value in node.all_input_nodes if value not in inside))


def _returned(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the values of ``nodes`` that are used outside."""
    inside = set(nodes)
    return tuple(node for node in nodes if any(user not in inside for user in node.users))


def _unsupported(form: GraphForm, node: Node, lowering: type[CallLowering]) -> str:
    """Return why a call has no plain kernel wherever it stands, or nothing."""
    try:
        lowering(form, [node], (node,), named(form, _arguments([node]), [node])).run()
    except OnlyViews:
        pass
    except NoPlainKernel as reason:
        return str(reason)
    return ""


def weight(form: GraphForm, nodes: Sequence[Node]) -> tuple[int, int]:
    """Return how many calls of a run compute, and how many views copy because of where their input lies."""
    return sum(_computes(form, node) for node in nodes), sum(_copies(form, node) for node in nodes)


def _computes(form: GraphForm, node: Node) -> bool:
    call = form.call(node)
    if call.op == "getitem":
        return any(
            isinstance(item, Node) and item in form.values and form.values[item][0].dtype is not None
            for item in call.args["index"]
        )
    return call.op not in VIEWS | ALIASES | {"dropout", "getattr"}


def _copies(form: GraphForm, node: Node) -> bool:
    call = form.call(node)
    if call.op not in ("reshape", "flatten", "contiguous"):
        return False
    return not any(value.dense(range(len(value.shape))) for value in form.values[call.args["input"]])


def largest(
    form: GraphForm, lowering: type[CallLowering] = CallLowering, exact: bool = True
) -> tuple[Part | None, dict[Node, str]]:
    """Return the run with the most calls that compute, or None, and why each call outside of any run has no kernel.

    A run in which no call computes has to copy. Unless ``exact``, calls count whose roundings show later.
    """
    calls = form.operators
    reasons: dict[Node, str] = {}
    for node in calls:
        reason = shows_later(form, node, lowering.inexact) if exact else ""
        if reason := reason or _unsupported(form, node, lowering):
            reasons[node] = reason
    best: Part | None = None
    score = (0, 0, 0)
    for first in range(len(calls)):
        for last in range(len(calls), first, -1):
            run = calls[first:last]
            if any(node in reasons for node in run) or _also_matches(form, run, reasons):
                continue
            computing, copying = weight(form, run)
            weights = (computing, copying, len(run))
            if weights <= score or not computing + copying:
                break
            try:
                best, score = part(form, run, lowering), weights
                break
            except NoPlainKernel:
                continue
    return (None if best is None else replace(best, reasons=reasons)), reasons


def _also_matches(form: GraphForm, run: Sequence[Node], reasons: dict[Node, str]) -> bool:
    """Return True if the run's pattern may match calls that are to be left to eager."""
    calls, ops = form.operators, [form.call(node).op for node in run]
    names = [form.call(node).op for node in calls]
    places = (calls[i : i + len(run)] for i in range(len(calls)) if names[i : i + len(run)] == ops)
    return any(node in reasons for place in places for node in place)
