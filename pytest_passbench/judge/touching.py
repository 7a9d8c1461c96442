"""The tasks that a candidate's passes match. Only their graphs are looked at: no kernel is compiled or run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from pytest_passbench.core import misses
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.names import CANDIDATE
from pytest_passbench.judge.case import smallest
from pytest_passbench.judge.devices import start_template
from pytest_passbench.judge.entries import pass_reports
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.plans import parse
from pytest_passbench.protocol import Order
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.limits import check_memory


class _Matched(ArmFailure):
    """The end of building a program once a pass has matched."""

    def __init__(self, name: str) -> None:
        super().__init__("pass_miss", "build", "not built: it was only matched")
        self.name = name


class _Noting:
    """A planner that has no plans: a request for one says which pass has matched."""

    def answer(self, data: Any, capability: int | None) -> NoReturn:  # noqa: ARG002
        raise _Matched(parse.request(data).name)


@dataclass(frozen=True)
class Touched:
    """A graph of a task, with the first pass that matches it, or with what was in the way of the nearest one."""

    graph: str
    name: str = ""
    miss: str = ""


def matches(task: Task, passes: tuple[dict[str, Any], ...], arm: Arm) -> Iterator[Touched]:
    """Yield each graph of the task with the first pass, as data, that matches it.

    The graphs are matched as they are written, without ``torch.compile``. ``arm`` is a candidate's sandbox. Raises
    UserError for a broken task, ArmFailure if the sandbox gives no answer.
    """
    check_graphs(task)
    for subgraph in smallest(task, lambda subgraph: subgraph.graph):
        check_memory(subgraph, task.path)
        yield _first_match(task, subgraph, passes, arm)


def _first_match(task: Task, subgraph: Subgraph, passes: tuple[dict[str, Any], ...], arm: Arm) -> Touched:
    layout = plan_layout(subgraph.inputs)
    pages = Pages(layout)
    order = Order(CANDIDATE, task.graphs[subgraph.graph], str(task.path), arm.settings.device, "direct", passes)
    try:
        template = start_template(arm, order, layout, pages.fd)
        try:
            report = template.wait(_Noting())
        except _Matched as matched:
            return Touched(subgraph.graph, matched.name)
        finally:
            template.leave()
    finally:
        arm.end_children()
        pages.close()
    reports = pass_reports(report["passes"])
    name = next((item.name for item in reports if item.matches), "")
    return Touched(subgraph.graph, name, "" if name else misses.message(reports).partition("\n")[0].rstrip(";"))
