"""The choice of a part: the largest run of a graph that has a kernel, or the run that the user named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.fx import Node

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Task
from pytest_passbench.first_pass.forms import GraphForm, forms
from pytest_passbench.first_pass.parts import Part, part, parts, reason
from pytest_passbench.fusion import Unsupported
from pytest_passbench.suite.opnames import is_metadata, op_name, operator_names

APART, NOT_REQUESTED = "it stands apart from the matched run", "it is not among the requested operators"


@dataclass(frozen=True)
class RequestedRun:
    """The run that the user asks for: lines ``first`` to ``last`` of the graph, or a sequence of operators."""

    first: int = -1
    last: int = -1
    operators: tuple[str, ...] = ()


class Choice:
    """The chosen part of a form. ``reasons`` has, by call, why it is left to eager; ``other`` is for other calls."""

    def __init__(
        self, where: str, form: GraphForm, candidates: Iterator[Part], reasons: dict[Node, str], other: str
    ) -> None:
        self.where, self.form, self.candidates, self.reasons, self.other = where, form, candidates, reasons, other
        names = dict.fromkeys(operator_names(form.operators))
        self.next("; ".join(dict.fromkeys(reasons.values())) or ", ".join(names))

    def reason(self, node: Node) -> str:
        """Return why a call is left to eager."""
        return self.reasons.get(node, self.other)

    def next(self, cause: str) -> None:
        """Choose the next best part. Raises UserError with the cause if there is none."""
        try:
            self.part = next(self.candidates)
        except StopIteration:
            remedy = _remedy(self.form, self.reasons)
            raise UserError(f"no kernel for {cause}", where=self.where, remedy=remedy) from None


def choices(task: Task, requested: RequestedRun | None, triton: bool) -> list[Choice]:
    """Return a choice for each form that has a part. Raises UserError if none has, or one lacks what is requested."""
    result, refusals = [], list[UserError]()
    for form in forms(task):
        reasons = {node: text for node in form.operators if (text := reason(form, node, triton))}
        candidates = _requested(task, form, requested, reasons) if requested else parts(form, reasons)
        try:
            result.append(Choice(task.id, form, candidates, reasons, NOT_REQUESTED if requested else APART))
        except UserError as refusal:
            refusals.append(refusal)
    if refusals and (requested or not result):
        raise refusals[0]
    return result


def _requested(task: Task, form: GraphForm, requested: RequestedRun, reasons: dict[Node, str]) -> Iterator[Part]:
    nodes = _named(task, form, requested)
    try:
        yield part(form, nodes)
    except Unsupported as cause:
        best = next(parts(form, reasons), None)
        remedy = f"what could be matched: {span(form, best.nodes)}" if best else "write it by hand"
        raise UserError(f"no kernel for {span(form, nodes)}: {cause}", where=task.id, remedy=remedy) from None


def _named(task: Task, form: GraphForm, requested: RequestedRun) -> list[Node]:
    calls = form.operators
    if not requested.operators:
        if not 0 <= requested.first <= requested.last < len(calls):
            raise UserError(
                f"--operators {requested.first}..{requested.last}: the graph has the lines 0 to {len(calls) - 1}",
                where=task.id,
                remedy=f"see `passbench tasks show {task.id}`",
            )
        return calls[requested.first : requested.last + 1]
    counted = [node for node in calls if not is_metadata(node)]
    names = [op_name(node) for node in counted]
    size = len(requested.operators)
    for start in range(len(counted) - size + 1):
        if tuple(names[start : start + size]) == requested.operators:
            begin, end = calls.index(counted[start]), calls.index(counted[start + size - 1])
            while end + 1 < len(calls) and is_metadata(calls[end + 1]):
                end += 1
            return calls[begin : end + 1]
    raise UserError(
        f"--ops {','.join(requested.operators)}: the graph has no such run",
        where=task.id,
        remedy=f"it has {','.join(names)}",
    )


def span(form: GraphForm, nodes: Sequence[Node]) -> str:
    """Return a run in words: its lines of the graph, and its operators."""
    calls = form.operators
    return f"--operators {calls.index(nodes[0])}..{calls.index(nodes[-1])} ({operators(nodes)})"


def operators(nodes: Sequence[Node]) -> str:
    """Return the operators of a run in words."""
    return ", ".join(operator_names(nodes))


def _remedy(form: GraphForm, reasons: dict[Node, str]) -> str:
    """Return what the user can do about a form if no run of it has a kernel."""
    never = {node: text for node, text in reasons.items() if "roundings" not in text}
    inexact = next(parts(form, never), None)
    if inexact is not None and len(never) < len(reasons):
        return f"{span(form, inexact.nodes)} has one that may round otherwise than eager"
    return "write the pass by hand, as docs/writing-a-pass.md says, or choose another task"
