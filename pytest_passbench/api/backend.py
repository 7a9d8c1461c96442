"""A call's work as the evaluator hands it to a backend, and what a backend reports."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.measure.noise import merged
from pytest_passbench.run.judging import judge_all, make_judge
from pytest_passbench.run.ledger import Ledger
from pytest_passbench.run.merge import common

if TYPE_CHECKING:
    from pytest_passbench.judge.session import Session


@dataclass(frozen=True)
class EvaluatorCall:
    """A call: its secret, its tasks, and its candidates. All tasks are judged for all candidates."""

    seed: bytes
    tasks: Sequence[Task]
    candidates: Sequence[Candidate]

    @property
    def subgraphs(self) -> int:
        """The number of subgraphs to be judged, at most: a record may leave some out."""
        return sum(len(task.subgraphs) for task in self.tasks) * len(self.candidates)


@dataclass(frozen=True)
class MachineReport:
    """Report: the ``environment`` of the judge ``worker``, and what it knows of its machine's noise so far."""

    worker: str
    environment: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)


Report = Record | MachineReport
"""A report on a call. A record is that of a judged subgraph, and a later one of the same subgraph replaces it."""


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
        self._judge = cast("Session", make_judge(settings, b"", worker))  # the other judge is that of trusted runs
        self._judge.repeats = thorough
        self._judge.start()

    def begin(self, seed: bytes, expected: int) -> None:
        """Begin a call with a secret of its own, of ``expected`` subgraphs."""
        self._judge.begin(seed)
        self._judge.expected = expected

    def judge(self, task: Task, candidates: Sequence[Candidate]) -> Iterator[Record]:
        """Yield the records of a task, for all candidates."""
        yield from judge_all(self._judge, [task], candidates, self._settings)

    def machine(self, worker: str = "") -> MachineReport:
        """Return the report on this machine."""
        return MachineReport(worker, self._judge.environment(), self._judge.noise())

    def close(self) -> None:
        """End the sandboxes."""
        self._judge.close()


def take(
    backend: Backend, ledger: Ledger, tasks: Sequence[Task], on_record: Callable[[Record], None] | None = None
) -> None:
    """Have the ledger's candidates judged, and take the reports into it. An exception of ``on_record`` ends that."""
    machines: dict[str, MachineReport] = {}
    call = EvaluatorCall(ledger.seed, tasks, ledger.candidates)
    try:
        with closing(backend.judge(call)) as reports:
            for report in reports:
                if isinstance(report, MachineReport):
                    machines[report.worker] = report
                    continue
                ledger.add(report)
                if on_record is not None:
                    on_record(report)
    finally:
        ledger.environment = common([machine.environment for machine in machines.values()]) if machines else {}
        ledger.noise = merged([machine.noise for machine in machines.values()])
