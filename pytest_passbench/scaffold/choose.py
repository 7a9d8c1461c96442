"""The choice of a part: the whole graph, the largest run of it, or the run that the user named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import Node

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Task
from pytest_passbench.scaffold.emitter import NoPlainKernel
from pytest_passbench.scaffold.forms import GraphForm, forms
from pytest_passbench.scaffold.lowering.lower import CallLowering
from pytest_passbench.scaffold.parts import Part, largest, part
from pytest_passbench.suite.opnames import is_metadata, op_name


@dataclass(frozen=True)
class RequestedRun:
    """The run that the user asks for: lines ``first`` to ``last`` of the graph, or a sequence of operators."""

    first: int = -1
    last: int = -1
    operators: tuple[str, ...] = ()


def choose(task: Task, requested: RequestedRun | None, lowering: type[CallLowering]) -> list[Part]:
    """Return a part for each form of a task. Raises UserError if a form has none, or not the one that is wanted."""
    parts = [_part_of(task, form, requested, lowering) for form in forms(task)]
    # A pattern may match other forms too. So those come first whose kernels refuse nothing that they are given.
    return sorted(parts, key=lambda part: bool(part.refused))


def _part_of(task: Task, form: GraphForm, requested: RequestedRun | None, lowering: type[CallLowering]) -> Part:
    if requested is None:
        best, reasons = largest(form, lowering)
        if best is None:
            raise UserError(f"no plain kernel for {_listed(reasons)}", where=task.id, remedy=_remedy(form, lowering))
        return best
    nodes = _named(task, form, requested)
    try:
        return part(form, nodes, lowering)
    except NoPlainKernel as reason:
        instead, _reasons = largest(form, lowering)
        remedy = f"what could be matched: {span(form, instead.nodes)}" if instead else "write it by hand"
        raise UserError(f"no plain kernel for {span(form, nodes)}: {reason}", where=task.id, remedy=remedy) from None


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
    names = ", ".join(op_name(node) for node in nodes if not is_metadata(node))
    return f"--operators {calls.index(nodes[0])}..{calls.index(nodes[-1])} ({names})"


def _listed(reasons: dict[Node, str]) -> str:
    return "; ".join(dict.fromkeys(reasons.values())) or "views, which cost nothing"


def _remedy(form: GraphForm, lowering: type[CallLowering]) -> str:
    """Return what to do about a form of which no run has a kernel."""
    if lowering is not CallLowering and largest(form)[0] is not None:
        return "there is one in C++: leave out --triton"
    inexact, _reasons = largest(form, lowering, exact=False)
    if inexact is not None:
        return f"{span(form, inexact.nodes)} has one that may round otherwise than eager"
    return "write the pass by hand, as docs/writing-a-pass.md says, or choose another task"
