"""The judging of some of a run's subgraphs anew, to see whether this machine finds what its file says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core import seed as seeds
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.core.task import Task
from pytest_passbench.run import agreement, judging
from pytest_passbench.run.judging import Judge, records


def disagreements(
    run: Run, tasks: Mapping[str, Task], candidate: Candidate, count: int, absent: Sequence[Task] = ()
) -> Iterator[str]:
    """Yield a sentence for each of ``count`` random records that comes out differently now, and for all together.

    No pass of the candidate may match one of the ``absent`` tasks, which a run of matching tasks only left out.
    """
    same_content = [item["name"] for item in run.candidates if item.get("content_hash") == candidate.content_hash]
    judged = [r for r in run.records if r.candidate in same_content and r.task in tasks and r.judged]
    sample = random.SystemRandom().sample(judged, min(count, len(judged)))
    settings: dict[str, Any] = {name: run.settings[name] for name in same_in("rerun") if name in run.settings}
    pairs: list[tuple[Record, Record]] = []
    with closing(judging.make_judge(Settings(**settings), seeds.draw())) as judge:
        for task in absent:
            if judge.touches(task, candidate):
                yield f"task {task.id}: left out, though a pass matches it"
        for record in sample:
            name, now = f"{record.task}/{record.subgraph}", _judged_anew(judge, record, tasks[record.task], candidate)
            if now is None:
                yield f"{name}: there is no such subgraph"
                continue
            pairs.append((record, now))
            text = agreement.difference(record, now)
            if text:
                yield f"{name}: {text}"
    yield from agreement.joint(pairs)


def _judged_anew(judge: Judge, record: Record, task: Task, candidate: Candidate) -> Record | None:
    """Return the record of a subgraph judged anew, with those beside it that the file's record leaves out."""
    names = (record.subgraph, *record.left_out)
    reduced_task = replace(task, subgraphs=tuple(subgraph for subgraph in task.subgraphs if subgraph.id in names))
    new_records = records(judge, reduced_task, candidate, record.tolerance, criterion=record.criterion)
    if record.left_out:
        return next((now for now in new_records if now.subgraph == record.subgraph), None)
    return next(reversed(list(new_records)), None)
