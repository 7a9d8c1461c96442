"""The judge that the environments of a process share: one warm evaluator, and a queue in front of it.

Explaining and generating a pass go through the same queue: they would take the cores from a timed block.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pytest_passbench.api.arguments import entries
from pytest_passbench.api.evaluator import Evaluator
from pytest_passbench.api.explanation import render
from pytest_passbench.api.outcome import Outcome
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import Record
from pytest_passbench.core.task import Task
from pytest_passbench.first_pass.write import Draft, draft
from pytest_passbench.judge.survey import survey

IsAwaited = Callable[[], bool]
"""A question asked while a caller waits: does anybody still wait for the result?"""
POLL_SECONDS = 0.2  # between two checks whether a waiting caller still awaits the result


@dataclass(frozen=True)
class Judging:
    """A judged answer: its outcome, the seconds that judging took, and those of waiting for it to begin."""

    outcome: Outcome
    judging_seconds: float
    waiting_seconds: float


class TurnLost(Exception):
    """The error that a caller gets no turn, because nobody awaits the result, or the queue is closed.

    It is not the user's, nor a model's: no tool reports it as a mistake.
    """


class SharedJudge:
    """A warm evaluator, with a queue of callers in front. Once it is ``closed``, nobody gets a turn.

    It closes the evaluator that it was given when it is closed itself.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self.closed = evaluator, False
        self._changed = threading.Condition()
        self._tickets: deque[object] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def callers(self) -> int:
        """The number of callers: the one whose turn it is, and those that wait."""
        return len(self._tickets)

    @contextmanager
    def _turn(self, is_awaited: IsAwaited) -> Iterator[float]:
        """Wait for a turn, which lasts as long as the context; its value is the seconds of waiting.

        ``is_awaited`` is asked whether anybody still waits for the result. Raises TurnLost.
        """
        ticket, begun = object(), time.monotonic()
        with self._changed:
            self._tickets.append(ticket)
        try:
            self._wait(ticket, is_awaited)
            yield time.monotonic() - begun
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    def _wait(self, ticket: object, is_awaited: IsAwaited) -> None:
        with self._changed:
            while True:
                self._check_open()
                if not is_awaited():
                    raise TurnLost("the caller has gone")
                if self._tickets[0] is ticket:
                    return
                self._changed.wait(POLL_SECONDS)

    def _check_open(self, _record: Record | None = None) -> None:
        if self.closed:
            raise TurnLost("the judge is closed")

    def judge(self, files: Mapping[str, str], task: str | Path, is_awaited: IsAwaited) -> Judging:
        """Judge an answer on a task. Raises UserError if the machine could not, and TurnLost."""
        with self._turn(is_awaited) as waited:
            begun = time.monotonic()
            outcome = self._evaluator.evaluate(files, task, on_record=self._check_open)
            return Judging(outcome, time.monotonic() - begun, waited)

    def explain(self, files: Mapping[str, str], task: Task, is_awaited: IsAwaited) -> str:
        """Return what ``passbench explain`` says of an answer and a task. Raises as :meth:`judge` does."""
        with self._turn(is_awaited), entries([files]) as (entry,):
            if entry.candidate is None:
                return printable(entry.mistake, LINES)
            report = survey(entry.candidate.path, self._evaluator.settings.policy, task)
            return printable("\n".join(render(task, report)).strip(), LINES)

    def first_pass(self, task: Task, is_awaited: IsAwaited) -> Draft:
        """Return what ``passbench new`` writes. Raises TurnLost, and UserError if a task gets no kernels."""
        with self._turn(is_awaited):
            return draft(task)

    def close(self) -> None:
        """End the judge's processes. Waiting callers get TurnLost, and a running one stops at its next subgraph."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._evaluator.close()


_judges: dict[int, SharedJudge] = {}
_starting = threading.Lock()


def process_judge() -> SharedJudge:
    """Return this process's own judge, which starts at the first call and judges in the pipeline "direct"."""
    with _starting:
        judge = _judges.get(os.getpid())
        if judge is None or judge.closed:
            judge = _judges[os.getpid()] = SharedJudge(Evaluator(pipeline="direct"))
        return judge
