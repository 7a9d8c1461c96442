"""The judging of some of a run's subgraphs anew, to see whether this machine finds what its file says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core import seed as seeds
from pytest_passbench.core.record import Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.core.task import Task
from pytest_passbench.run import judging
from pytest_passbench.run.judging import Judge, records

MAX_GAP = 1.15  # the ratio by which the intervals of two sessions on one machine may lie apart
MAX_LEVELS = 2  # of the ladder, by which an output's level may differ between two sets of inputs


def disagreements(run: Run, tasks: Mapping[str, Task], candidate: Candidate, count: int) -> Iterator[str]:
    """Yield a sentence for each of ``count`` random records that comes out differently now.

    Speeds may differ by what their intervals leave open, and are not compared if one was not measured.
    """
    names = [item["name"] for item in run.candidates if item.get("content_hash") == candidate.content_hash]
    judged = [r for r in run.records if r.candidate in names and r.task in tasks and r.judged]
    sample = random.SystemRandom().sample(judged, min(count, len(judged)))
    settings: dict[str, Any] = {name: run.settings[name] for name in same_in("rerun") if name in run.settings}
    with closing(judging.make_judge(Settings(**settings), seeds.draw())) as judge:
        for record in sample:
            yield from _disagreements_of(judge, record, tasks[record.task], candidate)


def _disagreements_of(judge: Judge, record: Record, task: Task, candidate: Candidate) -> Iterator[str]:
    subgraphs = tuple(subgraph for subgraph in task.subgraphs if subgraph.id == record.subgraph)
    single = replace(task, subgraphs=subgraphs)
    results = list(records(judge, single, candidate, record.tolerance, criterion=record.criterion))
    name = f"{record.task}/{record.subgraph}"
    if not results:
        yield f"{name}: there is no such subgraph"
        return
    now = results[-1]
    if not now.judged:
        yield f"{name}: could not be judged now: {now.arm.message}"
    elif now.arm.status != record.arm.status and record.arm.phase != "disqualified":
        yield f"{name}: {record.arm.status} in the file, {now.arm.status} now"
    elif now.correct != record.correct:
        yield f"{name}: correct at t = {record.tolerance} ({record.criterion}) in only one of the file and now"
    elif _better(record.arm.correct_from, now.arm.correct_from):
        yield f"{name}: correct from t = {record.arm.correct_from} in the file, {now.arm.correct_from} now"
    elif now.arm.speed and record.arm.speed and not _near(now.arm.speed, record.arm.speed):
        yield f"{name}: {record.arm.speed.ratio:.3f} times as fast in the file, {now.arm.speed.ratio:.3f} now"


def _better(levels: Sequence[int], now: Sequence[int]) -> bool:
    """Return True if some output's level in the file is better than now by more than new inputs explain."""
    return len(levels) != len(now) or any(a + MAX_LEVELS < b for a, b in zip(levels, now, strict=True))


def _near(a: Speed, b: Speed) -> bool:
    return a.low <= b.high * MAX_GAP and b.low <= a.high * MAX_GAP
