"""A forecast of a run, from the durations of an earlier one: its tasks, longest first, and how long it will take."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run


def forecast_line(run: Run, workers: int = 1) -> str:
    """Return how long the run's tasks take on some workers; "" if the run has no durations."""
    if not any(record.durations for record in run.records):
        return ""
    durations = [(record.task, record.durations) for record in run.records]
    forecast = plan(durations, unknown=_unmeasured(run), workers=workers)
    on = f" on {counted(workers, 'worker')} ({_clock(forecast.seconds)} of work)" if workers > 1 else ""
    tasks = "This task takes" if len(forecast.tasks) == 1 else f"These {len(forecast.tasks)} tasks take"
    return f"{tasks} about {_clock(forecast.elapsed)}{on} to judge."


def _unmeasured(run: Run) -> dict[str, int]:
    """Return the run's tasks without a record (it was cut short), each with the median task's number of subgraphs."""
    counts: dict[str, int] = {}
    for record in run.records:
        counts[record.task] = counts.get(record.task, 0) + 1
    typical = round(median(counts.values())) if counts else 1
    return {task: typical for task in run.tasks if task not in counts}


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60:02} s"


@dataclass(frozen=True)
class TaskForecast:
    """A task in a forecast: its expected seconds, in all and by phase, and its number of subgraphs.

    If ``guessed`` is true the task was never measured, and the median subgraph was assumed.
    """

    task: str
    seconds: float
    subgraphs: int
    phases: Mapping[str, float]
    guessed: bool = False


@dataclass(frozen=True)
class Forecast:
    """A run: its tasks, longest first, ``seconds`` of work, and the time ``elapsed`` on ``workers`` workers."""

    tasks: tuple[TaskForecast, ...]
    workers: int
    seconds: float
    elapsed: float

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase over all tasks, largest first."""
        totals: dict[str, float] = {}
        for item in self.tasks:
            for phase, seconds in item.phases.items():
                totals[phase] = totals.get(phase, 0.0) + seconds
        return dict(sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])))


def plan(
    durations: Iterable[tuple[str, Mapping[str, float]]],
    *,
    unknown: Mapping[str, int] | None = None,
    workers: int = 1,
) -> Forecast:
    """Return a forecast from stored records: (task id, seconds by phase) per subgraph.

    ``unknown`` maps tasks without a record to their number of subgraphs. Each counts as the median subgraph.
    The longest task goes first, so that no worker starts a long task late. This order takes at most 4/3 of the
    best schedule's time (Graham 1969). Raises ValueError if there is less than one worker, or if a duration is
    negative or not finite.
    """
    if workers < 1:
        raise ValueError(f"at least one worker, not {workers}")
    by_task: dict[str, list[Mapping[str, float]]] = {}
    for task, phases in durations:
        _check(task, phases)
        by_task.setdefault(task, []).append(phases)
    tasks = [_measured(task, rows) for task, rows in by_task.items()]
    typical = median([sum(row.values()) for rows in by_task.values() for row in rows] or [0.0])
    for task, count in (unknown or {}).items():
        if task not in by_task:
            tasks.append(TaskForecast(task, typical * count, count, {}, guessed=True))
    ordered = tuple(sorted(tasks, key=lambda item: (-item.seconds, item.task)))
    return Forecast(ordered, workers, sum(t.seconds for t in ordered), _elapsed(ordered, workers))


def _check(task: str, phases: Mapping[str, float]) -> None:
    for phase, seconds in phases.items():
        # Durations come from a file, so any value is possible.
        if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"task {task}: the duration of {phase!r} is {seconds!r}")


def _measured(task: str, rows: list[Mapping[str, float]]) -> TaskForecast:
    phases: dict[str, float] = {}
    for row in rows:
        for phase, seconds in row.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    return TaskForecast(task, sum(phases.values()), len(rows), phases)


def _elapsed(tasks: Iterable[TaskForecast], workers: int) -> float:
    """Return the seconds until the last worker ends, if each free worker takes the next task."""
    free = [0.0] * workers
    for item in tasks:
        heapq.heapreplace(free, free[0] + item.seconds)
    return max(free)
