"""How long a run will take, and in which order to run it, from the durations of an earlier one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Planned:
    """One task: its expected seconds, how many subgraphs it has, and by phase. ``guessed``: never measured,
    the median subgraph stands in."""

    task: str
    seconds: float
    subgraphs: int
    phases: Mapping[str, float]
    guessed: bool = False


@dataclass(frozen=True)
class Forecast:
    """A run: its tasks, longest first; ``seconds`` of work; ``elapsed`` on ``workers`` workers."""

    tasks: tuple[Planned, ...]
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
    """A plan from stored records: (task id, seconds by phase) per subgraph.

    ``unknown``: tasks without a record -> number of subgraphs; each counts as the median subgraph. Longest
    first keeps the last worker from starting a long task late: at most 4/3 of the best schedule (Graham
    1969). ValueError for fewer than one worker, or a duration that is negative or not finite.
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
            tasks.append(Planned(task, typical * count, count, {}, guessed=True))
    ordered = tuple(sorted(tasks, key=lambda item: (-item.seconds, item.task)))
    return Forecast(ordered, workers, sum(t.seconds for t in ordered), _elapsed(ordered, workers))


def _check(task: str, phases: Mapping[str, float]) -> None:
    for phase, seconds in phases.items():
        # From a file, where anything may stand.
        if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"task {task}: the duration of {phase!r} is {seconds!r}")


def _measured(task: str, rows: list[Mapping[str, float]]) -> Planned:
    phases: dict[str, float] = {}
    for row in rows:
        for phase, seconds in row.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    return Planned(task, sum(phases.values()), len(rows), phases)


def _elapsed(tasks: Iterable[Planned], workers: int) -> float:
    """When the last worker ends, each taking the next task as it becomes free."""
    free = [0.0] * workers
    for item in tasks:
        heapq.heapreplace(free, free[0] + item.seconds)
    return max(free)
