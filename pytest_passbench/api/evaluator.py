"""Judging from Python: once, or again and again with warm sandboxes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pytest_passbench.api.arguments import Answer, Entry, Paths, TaskShelf, begin_run, entries, paths, task_paths
from pytest_passbench.api.arguments import settings as settings_of
from pytest_passbench.api.backend import Backend, Local, take
from pytest_passbench.api.outcome import Outcome
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.run.judging import Judge, judge_all, make_judge
from pytest_passbench.run.ledger import Ledger, check_run, run_seed

OnRecord = Callable[[Record], None]


def evaluate(
    candidate: Paths,
    tasks: Paths | None = None,
    *,
    on_record: OnRecord | None = None,
    judge: Callable[[Settings, bytes], Judge] = make_judge,
    **settings: Any,
) -> Outcome:
    """Judge one candidate folder, or several, with the guarantees of ``pytest --passbench``; return the run.

    ``record.correct`` of each of ``run.records`` says whether the answer is right, ``record.arm`` how fast it is.

    ``tasks``: ids of installed tasks, or task files, published samples, or folders of them. By default they are the
    installed tasks of ``suite`` ("lite"). ``settings`` are the fields of
    :class:`~pytest_passbench.core.settings.Settings`. ``on_record`` is called with every record as it is made; a
    KeyboardInterrupt ends the run and returns what there is, marked interrupted. ``judge`` makes the run's judge from
    its settings and its seed. For many calls, :class:`Evaluator` keeps what takes long to start.

    Raises UserError for a folder without passes, a file that is not a task, or a setting that is wrong.
    """
    run_settings = settings_of(settings, "evaluate", candidates=paths(candidate), tasks=task_paths(tasks))
    check_run(run_settings)
    ledger, loaded = begin_run(run_settings)
    with closing(judge(ledger.settings, ledger.seed)) as judging:
        ledger.environment = judging.environment()
        try:
            _judge_into(ledger, judging, loaded, on_record)
        except KeyboardInterrupt:
            ledger.interrupted = True
        ledger.noise = judging.noise()
    return Outcome.from_run(ledger.run())


def _judge_into(ledger: Ledger, judge: Judge, tasks: Sequence[Task], on_record: OnRecord | None) -> None:
    judge.expected = sum(len(task.subgraphs) for task in tasks) * len(ledger.candidates)
    for record in judge_all(judge, tasks, ledger.candidates, ledger.settings):
        ledger.add(record)
        if on_record is not None:
            on_record(record)


class Evaluator:
    """A judge for many calls: its sandboxes, and eager's built programs, stay warm from one call to the next.

    It is a context manager. Each call is a run of its own, with new secret inputs; eager is timed anew beside each
    candidate. Calls may come from any thread, and from coroutines; they are judged one after the other. A call that
    is interrupted, or ends with an exception other than UserError, costs the warm processes, and the next call starts
    new ones.

    ``tasks`` are judged by calls that name none: the id of an installed task, a task file, a folder of tasks, a suite
    ("lite", "full", "train", "all"), or several of these. With ``thorough``, subgraphs whose verdict noise kept open
    are measured again, as in a pytest run: narrower intervals, longer calls. ``settings`` are the fields of
    :class:`~pytest_passbench.core.settings.Settings`; ``budget`` is that of each call. ``backend`` is "local", "ray",
    or an object that judges calls (:class:`pytest_passbench.api.backend.Backend`). ``address`` is that of a Ray
    cluster.

    Raises UserError for a setting that is wrong, or a machine that can't judge.
    """

    def __init__(
        self,
        tasks: Paths | None = None,
        *,
        thorough: bool = False,
        backend: str | Backend = "local",
        address: str | None = None,
        **settings: Any,
    ) -> None:
        refused = ("task_ids", "suite", "only_matching", "trusted", "seed", "against")
        self.settings = settings_of(settings, "Evaluator", refused)
        self._process, self._lock, self._closed = os.getpid(), threading.Lock(), False
        self._shelf = TaskShelf()
        self._tasks = None if tasks is None else self._shelf.named(tasks)
        self._backend = make_backend(backend, self.settings, thorough, address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def evaluate(
        self, candidate: str | Path | Answer, tasks: Paths | None = None, *, on_record: OnRecord | None = None
    ) -> Outcome:
        """Judge a candidate and return its outcome: records, score, reward, and feedback in words.

        ``candidate`` is a folder, or the text of each file by its name. A text from which no candidate can be made
        fails on every subgraph (``compile_fail``); such a folder raises UserError. ``tasks`` are as in
        :class:`Evaluator`. ``on_record`` is called with every record as it is made.
        """
        return self.evaluate_many([candidate], tasks, on_record=on_record)[0]

    def evaluate_many(
        self,
        candidates: Iterable[str | Path | Answer],
        tasks: Paths | None = None,
        *,
        on_record: OnRecord | None = None,
    ) -> list[Outcome]:
        """Judge several candidates, and return their outcomes in the same order.

        They share eager's programs, the baselines' results, and the secret seed, but neither inputs nor timings:
        eager is timed beside each of them. Otherwise as :meth:`evaluate`.
        """
        self._check_usable()
        selected = self._tasks if tasks is None else self._shelf.named(tasks)
        if selected is None:
            remedy = "give the call, or the evaluator, a task's id or file, or the name of a suite"
            raise UserError("no task is named", where="Evaluator", remedy=remedy)
        with entries(list(candidates)) as opened, self._lock:
            self._check_usable()
            return self._judged(opened, selected, on_record) if opened else []

    async def evaluate_async(
        self, candidate: str | Path | Answer, tasks: Paths | None = None, *, on_record: OnRecord | None = None
    ) -> Outcome:
        """Judge a candidate in a thread, and return its outcome. A cancelled call is judged to its end regardless."""
        return await asyncio.to_thread(self.evaluate, candidate, tasks, on_record=on_record)

    def _judged(self, opened: Sequence[Entry], tasks: Sequence[Task], on_record: OnRecord | None) -> list[Outcome]:
        candidates = [entry.candidate for entry in opened if entry.candidate is not None]
        ids, folders = tuple(task.id for task in tasks), tuple(candidate.path for candidate in candidates)
        run_settings = replace(self.settings, suite="all", task_ids=ids, candidates=folders)
        ledger = Ledger(run_settings, candidates, run_seed(None))
        ledger.select(tasks)
        if candidates:
            take(self._backend, ledger, tasks, on_record)
        run = Outcome.from_run(ledger.run())
        mistaken = {entry.name: self._mistaken(entry, run, tasks) for entry in opened if entry.candidate is None}
        for record in (record for outcome in mistaken.values() for record in outcome.records):
            if on_record is not None:
                on_record(record)
        return [mistaken.get(entry.name) or run.only(entry.name) for entry in opened]

    def _mistaken(self, entry: Entry, run: Outcome, tasks: Sequence[Task]) -> Outcome:
        """Return the outcome of an answer from which no candidate could be made."""
        return replace(
            run,
            records=[record for task in tasks for record in entry.records(task, self.settings)],
            candidates=[{"name": entry.name, "path": "", "content_hash": ""}],
            selected={entry.name: {task.id: len(task.subgraphs) for task in tasks}},
        )

    def _check_usable(self) -> None:
        if self._closed:
            raise UserError("the evaluator is closed", where="Evaluator", remedy="make another one")
        if os.getpid() != self._process:
            remedy = "make one in this process: several may judge at once, and take turns at timing"
            raise UserError("the evaluator belongs to another process", where="Evaluator", remedy=remedy)

    def close(self) -> None:
        """End all processes. A call in another thread is waited for."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._backend.close()


def make_backend(named: str | Backend, settings: Settings, thorough: bool, address: str | None) -> Backend:
    """Return the backend of this name, or the one given. Raises UserError if there is none, or if it can't start."""
    if not isinstance(named, str):
        return named
    if address is not None and named != "ray":
        raise UserError("only Ray has an address", where="Evaluator, address", remedy='use backend="ray"')
    if named == "local":
        check_run(settings)
        return Local(settings, thorough)
    if named == "ray":
        from pytest_passbench.api.cluster import Cluster

        return Cluster(settings, thorough, address)
    raise UserError(f"unknown backend {named!r}", where="Evaluator", remedy="local or ray")
