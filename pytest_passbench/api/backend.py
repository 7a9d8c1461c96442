"""A call's work as the evaluator hands it to a backend, and what a backend reports."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.measure.noise import merged
from pytest_passbench.run.judging import Judge, LastingJudge, make_judge, records
from pytest_passbench.run.ledger import Ledger
from pytest_passbench.run.merge import common


@dataclass(frozen=True)
class EvaluatorCall:
    """A call: its secret, its tasks, and its candidates. All tasks are judged for all candidates."""

    seed: bytes
    tasks: Sequence[Task]
    candidates: Sequence[Candidate]


@dataclass(frozen=True)
class SelectionReport:
    """Report: so many subgraphs of a task will be judged for a candidate, without those that records leave out."""

    task: str
    candidate: str
    count: int


@dataclass(frozen=True)
class SubgraphReport:
    """Report: a subgraph is judged. A later record of the same subgraph replaces this one."""

    record: Record


@dataclass(frozen=True)
class MachineReport:
    """Report: the ``environment`` of the judge ``worker``, and what it knows of its machine's noise so far."""

    worker: str
    environment: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)


Report = SelectionReport | SubgraphReport | MachineReport


class Backend(Protocol):
    """A place where an evaluator's calls are judged. Calls come one at a time, from any thread."""

    def judge(self, call: EvaluatorCall) -> Generator[Report]:
        """Yield the reports of a call. Raises UserError if judging is impossible.

        There are MachineReports among them, so that a call that is cut short has some: the last one of each worker
        counts. If its consumer closes it before the end, all processes end at once, and the next call starts others.
        """

    def close(self) -> None:
        """End all processes, and wait for that."""


class JudgeWorker:
    """A judge that serves one call after the other, in the process that owns its sandboxes."""

    def __init__(self, settings: Settings, thorough: bool, worker: int = 0) -> None:
        """Raises UserError if this machine can't judge. The sandboxes start in the background."""
        self._settings = settings
        self._judge: Judge = make_judge(settings, b"", worker)
        if isinstance(self._judge, LastingJudge):
            self._judge.repeats = thorough
            self._judge.start()

    def begin(self, seed: bytes, expected: int) -> None:
        """Begin a call with a secret of its own, of ``expected`` subgraphs."""
        assert isinstance(self._judge, LastingJudge)
        self._judge.begin(seed)
        self._judge.expected = expected

    def judge(self, tasks: Sequence[Task], candidates: Sequence[Candidate]) -> Iterator[Report]:
        """Yield the reports on these tasks, but for a MachineReport."""
        t, criterion = self._settings.tolerance, self._settings.criterion
        for task in tasks:
            for candidate in candidates:
                yield SelectionReport(task.id, candidate.name, len(task.subgraphs))
                for record in records(self._judge, task, candidate, t, criterion=criterion):
                    yield SubgraphReport(record)

    def machine(self, worker: str = "") -> MachineReport:
        """Return the report on this machine."""
        return MachineReport(worker, self._judge.environment(), self._judge.noise())

    def close(self) -> None:
        """End the sandboxes."""
        self._judge.close()


def take(
    backend: Backend, call: EvaluatorCall, ledger: Ledger, on_record: Callable[[Record], None] | None = None
) -> None:
    """Have a call judged, and take its reports into the ledger. An exception of ``on_record`` ends the call."""
    machines: dict[str, MachineReport] = {}
    try:
        with closing(backend.judge(call)) as reports:
            for report in reports:
                if isinstance(report, SelectionReport):
                    ledger.expect(report.task, report.candidate, report.count)
                elif isinstance(report, SubgraphReport):
                    ledger.add(report.record)
                    if on_record is not None:
                        on_record(report.record)
                else:
                    machines[report.worker] = report
    finally:
        ledger.environment = common([machine.environment for machine in machines.values()]) if machines else {}
        ledger.noise = merged([machine.noise for machine in machines.values()])


def subgraphs(call: EvaluatorCall) -> int:
    """Return the number of subgraphs that a call has at most."""
    return sum(len(task.subgraphs) for task in call.tasks) * len(call.candidates)
