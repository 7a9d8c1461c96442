"""The interface of a run's judge, the making of one, and the loop over tasks and candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.suite.find import TaskRef
from pytest_passbench.suite.taskfile import task_hash


class Judge(Protocol):
    """The judge of tasks for candidates, in this process or in sandboxes."""

    expected: int
    """The subgraphs that this judge will be asked for, as far as its caller knows; 0 if unknown."""

    def touches(self, ref: TaskRef, candidate: Candidate) -> bool:
        """Return True if a pass of the candidate matches a graph of the task. Raises UserError for a broken task."""

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """Yield a record per subgraph as soon as it is judged; a later record of the same subgraph replaces it.

        Subgraphs that a record names as left out have none of their own. Raises UserError for a broken task only.
        """

    def environment(self) -> dict[str, Any]:
        """Return the facts about this machine that results depend on, JSON-ready."""

    def noise(self) -> dict[str, Any]:
        """Return this machine's noise as eager against eager has shown it so far, JSON-ready."""

    def close(self) -> None:
        """End every process of the judge."""


def make_judge(settings: Settings, seed: bytes, worker: int = 0) -> Judge:
    """Return the judge of this process; ``worker`` tells parallel ones apart, from 0.

    Raises UserError if this machine can't judge.
    """
    if settings.trusted:
        from pytest_passbench.judge.trusted import TrustedSession

        return TrustedSession(settings, seed)
    from pytest_passbench.judge.session import Session

    try:
        return Session(settings, seed, worker)
    except OSError as error:
        raise UserError(f"nothing can be judged here: {error}") from error


def records(
    judge: Judge, task: Task, candidate: Candidate, scoring: Settings | Record, exclude: Collection[str] = ()
) -> Iterator[Record]:
    """Yield the judge's records of a task and a candidate, except for the subgraphs in ``exclude``.

    The t and the criterion of ``scoring`` are put into each: judges need not do that.
    """
    left = [item.id for item in task.subgraphs if item.id not in exclude]
    part = task.part(left) if exclude else task
    for record in judge.judge(part, candidate) if left else ():
        record.tolerance, record.criterion = scoring.tolerance, scoring.criterion
        if exclude:
            record.task_hash = task_hash(task)
        yield record


def judge_all(
    judge: Judge, tasks: Sequence[Task], candidates: Sequence[Candidate], settings: Settings
) -> Iterator[Record]:
    """Yield the judge's records of every task and candidate."""
    for task in tasks:
        for candidate in candidates:
            yield from records(judge, task, candidate, settings)
