"""The time that the tasks of a stored run take, in words."""

from __future__ import annotations

from statistics import median

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.timing.forecast import plan


def forecast_line(run: Run, workers: int = 1) -> str:
    """Return how long the run's tasks take on some workers; "" if the run has no durations."""
    if not any(record.durations for record in run.records):
        return ""
    durations = [(record.task, record.durations) for record in run.records]
    forecast = plan(durations, unknown=_unmeasured(run), workers=workers)
    on = f" on {counted(workers, 'worker')} ({_clock(forecast.seconds)} of work)" if workers > 1 else ""
    return f"These {counted(len(forecast.tasks), 'task')} take about {_clock(forecast.elapsed)}{on} to judge."


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
