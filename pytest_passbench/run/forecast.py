"""A forecast of a run, from the durations of an earlier one: how long its tasks will take."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from statistics import median

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run


def forecast_line(run: Run, workers: int = 1, whose: str = "") -> str:
    """Return how long the run's tasks take on some workers; "" if the run has no durations.

    ``whose`` is a genitive, such as "The earlier run's"; without it, they are called these tasks.
    """
    if not any(record.durations for record in run.records):
        return ""
    seconds = seconds_of_tasks(run)
    on = f" on {counted(workers, 'worker')} ({_clock(sum(seconds))} of work)" if workers > 1 else ""
    single = f"{whose} task takes" if whose else "This task takes"
    tasks = single if len(seconds) == 1 else f"{whose or 'These'} {len(seconds)} tasks take"
    return f"{tasks} about {_clock(elapsed(seconds, workers))}{on} to judge."


def seconds_of_tasks(run: Run) -> list[float]:
    """Return the expected seconds of each of the run's tasks, the longest first.

    A task without a record (the run was cut short) counts as the median task's number of median subgraphs.
    """
    counts = Counter(record.task for record in run.records)
    totals = dict.fromkeys(run.tasks, 0.0)
    for record in run.records:
        totals[record.task] = totals.get(record.task, 0.0) + sum(record.durations.values())
    guess = round(median(counts.values())) * median(sum(record.durations.values()) for record in run.records)
    return sorted((total if task in counts else guess for task, total in totals.items()), reverse=True)


def elapsed(seconds: Iterable[float], workers: int) -> float:
    """Return the seconds until the last worker ends, if each free worker takes the next task.

    With the longest task first, no worker starts a long task late. This order takes at most 4/3 of the best
    schedule's time (Graham 1969).
    """
    free = [0.0] * workers
    for item in seconds:
        heapq.heapreplace(free, free[0] + item)
    return max(free)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60:02} s"
