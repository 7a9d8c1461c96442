"""A case: one subgraph of a task, to be judged for one candidate."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.seed import Secret
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, TWIN
from pytest_passbench.protocol import Order
from pytest_passbench.suite.find import edition_of
from pytest_passbench.suite.taskfile import task_hash


@dataclass(frozen=True)
class Case:
    """A subgraph of a task to be judged for a candidate in a pipeline.

    ``seed`` is the run's secret. ``turn`` is how often the case was judged before in the run. ``hashed`` is the
    task's hash, or empty if it is still to be computed.
    """

    task: Task
    subgraph: Subgraph
    candidate: Candidate
    pipeline: str
    seed: bytes = field(repr=False)
    turn: int = 0
    hashed: str = ""

    @property
    def passes(self) -> PassDir:
        """The candidate's pass directory for the task. Use it only for a case without a :attr:`fault`."""
        passes = self.candidate.passes_for(self.task.id)
        assert passes is not None
        return passes

    @property
    def fault(self) -> ArmResult | None:
        """The result of a candidate that cannot be run; None if it can."""
        passes = self.candidate.passes_for(self.task.id)
        if passes is None:
            return ArmResult("pass_miss", "load", "the candidate has no passes for this task")
        mistakes = passes.mistakes or misplacement(passes, self.pipeline)
        return ArmResult("compile_fail", "load", mistakes) if mistakes else None

    @property
    def operators(self) -> int:
        """At least the number of operators that the subgraph's graph calls, views and items included."""
        operators = ast.Call | ast.operator | ast.unaryop | ast.cmpop | ast.Subscript
        nodes = ast.walk(ast.parse(self.task.graphs[self.subgraph.graph]))
        return sum(isinstance(node, operators) for node in nodes)

    def record(self) -> Record:
        """Return a new record of the case, with nothing judged."""
        subgraph, passes = self.subgraph, self.candidate.passes_for(self.task.id)
        record = Record(self.task.id, subgraph.id, self.candidate.name, subgraph.source, subgraph.dtype)
        record.folder = self.candidate.folder(passes) if passes is not None else ""
        record.task_hash = self.hashed or task_hash(self.task)
        record.edition = edition_of(self.task.path)
        record.operators, record.headroom = list(self.task.header.ops), self.task.header.headroom
        return record

    def secret(self, attempt: str) -> Secret:
        """Return the case's part of the run's secret. Each ``attempt`` at judging it has another one."""
        turn = [f"turn {self.turn}"] if self.turn else []
        return Secret(self.seed, self.task.id, self.subgraph.id, self.candidate.name, attempt, *turn)

    def orders(self, settings: Settings, arms: Iterable[str], passes: tuple[dict[str, Any], ...]) -> dict[str, Order]:
        """Return the order for each arm's program: the subgraph's source, for the candidate with its ``passes``."""
        source, origin = self.task.graphs[self.subgraph.graph], f"{self.task.path.name}:{self.subgraph.graph}"
        orders = {name: Order(name, source, origin, settings.device) for name in arms}
        if TWIN in orders:
            orders[TWIN] = orders[EAGER]
        orders[CANDIDATE] = Order(CANDIDATE, source, origin, settings.device, self.pipeline, passes)
        return orders


def smallest(task: Task, key: Callable[[Subgraph], str]) -> tuple[Subgraph, ...]:
    """Return the task's smallest subgraph for each value of ``key``, the smallest of all first."""
    least: dict[str, Subgraph] = {}
    for subgraph in sorted(task.subgraphs, key=lambda item: item.elements):
        least.setdefault(key(subgraph), subgraph)
    return tuple(least.values())


def smallest_first(task: Task) -> tuple[Subgraph, ...]:
    """Return the task's subgraphs: the smallest one of each dtype, then the others in the task's order."""
    first = smallest(task, lambda subgraph: subgraph.dtype)
    names = {subgraph.id for subgraph in first}
    return (*first, *(subgraph for subgraph in task.subgraphs if subgraph.id not in names))


def misplacement(passes: PassDir, pipeline: str) -> str:
    """Return why a directory's TorchInductor passes cannot be judged in ``pipeline``. Empty if nothing is wrong."""
    if "inductor" not in passes.kinds:
        return ""
    if len(passes.kinds) > 1:
        return f"{passes.path}: passes that call register_replacement lie beside others; give them their own folder"
    if pipeline != "inductor":
        remedy = "--passbench-pipeline=inductor is needed"
        return f"{passes.path}: its passes call register_replacement, and match what TorchInductor sees: {remedy}"
    return ""
