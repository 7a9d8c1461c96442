"""The board: the scores of one candidate over all tasks.

A task is a list of the subgraphs that the run was to judge. A subgraph without a record (the judge crashed, or
the run was interrupted) is a failure in every column. AS and ES(t) are geometric means over the tasks. The
other columns are taken over all subgraphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_passbench.core.criterion import Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import METRICS, ScoreSettings
from pytest_passbench.score.es import Curve, Scores, aggregate, evaluate, geomean, ladder
from pytest_passbench.score.possible import Possible, possible
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged, from_record

Tasks = Mapping[str, Sequence[Judged]]


@dataclass(frozen=True)
class ScoreRow:
    """A row of the board. ``correct`` and ``fast1`` are shares in 0 .. 1. None means: not available.

    ``unmeasured`` of the ``subgraphs`` are correct at the row's t and have no speed, and ``missing`` are not judged.
    ``possible`` is the share of the possible of all of them.
    """

    name: str
    scores: Scores
    gmean: float | None
    correct: float | None
    fast1: float | None
    subgraphs: int
    unmeasured: int
    missing: int
    possible: Possible


def row(name: str, tasks: Tasks, settings: ScoreSettings, t: int = T_STRICT) -> ScoreRow:
    """Return the board's row of one candidate or baseline; all but its scores is at ``t``.

    Raises UserError on bad settings.
    """
    subgraphs = [subgraph for group in tasks.values() for subgraph in group]
    return ScoreRow(
        name=name,
        scores=over_tasks([evaluate(group, settings) for group in tasks.values()], settings),
        gmean=gmean(subgraphs, t),
        correct=correctness(subgraphs, t),
        fast1=fast(subgraphs, 1.0, t),
        subgraphs=len(subgraphs),
        unmeasured=sum(subgraph.unmeasured_at(t) for subgraph in subgraphs),
        missing=sum(subgraph.status == NOT_JUDGED for subgraph in subgraphs),
        possible=possible(subgraphs, t),
    )


def over_tasks(tasks: Sequence[Scores], settings: ScoreSettings) -> Scores:
    """Return the geometric mean of the tasks' curves at every t; nothing is available if there are no tasks.

    AS is a weighted product of ES(t), so the AS of these curves is the geometric mean of the tasks' AS.
    """
    steps = ladder(settings.interpretation)
    if not tasks:
        nothing: Curve = dict.fromkeys(steps)
        return Scores(nothing, nothing, None, nothing, None)
    curves = ([getattr(task, name) for task in tasks] for name in ("s", "es", "es_published"))
    s, es, published = ({t: _mean([curve[t] for curve in every]) for t in steps} for every in curves)
    return Scores(s, es, aggregate(es), published, aggregate(published))


def gmean(subgraphs: Sequence[Judged], t: int = T_STRICT) -> float | None:
    """Return G-Mean: the geometric mean speedup of the measured subgraphs that are correct at ``t``, or None
    without any.
    """
    return geomean(s.speedup for s in subgraphs if s.correct_at(t) and s.speedup is not None)


def correctness(subgraphs: Sequence[Judged], t: int = T_STRICT) -> float | None:
    """Return the share of subgraphs that are correct at ``t``, or None without subgraphs."""
    return sum(s.correct_at(t) for s in subgraphs) / len(subgraphs) if subgraphs else None


def fast(subgraphs: Sequence[Judged], p: float, t: int = T_STRICT) -> float | None:
    """Return fast_p: the share of all subgraphs that are correct at ``t`` and at least ``p`` times as fast as
    eager.

    It is None if a correct subgraph was not measured, or if there are no subgraphs.
    """
    if not subgraphs or any(s.unmeasured_at(t) for s in subgraphs):
        return None
    quick = (s for s in subgraphs if s.correct_at(t) and s.speedup is not None and s.speedup >= p)
    return sum(1 for _ in quick) / len(subgraphs)


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return geomean(measured) if len(measured) == len(values) else None


def tasks_of(run: Run, candidate: str, criterion: Criterion = "ladder") -> dict[str, list[Judged]]:
    """Return a candidate's subgraphs by task, as many as were selected, under a criterion.

    Subgraphs without a record count as not judged. Those that the harness failed to judge are left out, and so are
    tasks that then have no subgraph.
    """
    beside = {record.task: record for record in run.records}
    tasks: dict[str, list[Judged]] = {}
    for task, records in run.by_task(candidate).items():
        group = [from_record(record, criterion=criterion) for record in records if record.judged]
        group += [_not_judged(beside.get(task))] * (run.count(candidate, task) - len(records))
        if group or not records:
            tasks[task] = group
    return tasks


def _not_judged(beside: Record | None) -> Judged:
    """Return a subgraph that was not judged. ``beside`` is another record of its task, if there is one."""
    if beside is None:
        return Judged(NOT_JUDGED)
    return Judged(NOT_JUDGED, headroom=beside.headroom, operators=tuple(beside.operators))


def baseline_of(run: Run, name: str, criterion: Criterion = "ladder") -> dict[str, list[Judged]]:
    """Return a baseline's subgraphs by task, as measured beside the first candidate that has them.

    Subgraphs that the baseline was not run on are left out. A task without any counts as missing.
    """
    groups = grouped(run.beside(name), lambda record: record.task)
    judged = {task: [from_record(record, name, criterion) for record in group] for task, group in groups.items()}
    return {task: [] for task in run.tasks} | judged


def metric(run: Run, candidate: str, name: str, criterion: Criterion | None = None) -> float | None:
    """Return the score that a gate compares: ``AS``, ``correct`` and ``fast1`` (shares in 0 .. 1) or ``gmean``.

    ``criterion`` is the run's if none is given. The score is None if a speed was not measured or nothing was judged.
    Raises UserError for another name.
    """
    scores_row = row(candidate, tasks_of(run, candidate, criterion or run.criterion), run.score_settings)
    match name:
        case "AS":
            return scores_row.scores.as_
        case "correct":
            return scores_row.correct
        case "gmean":
            return scores_row.gmean
        case "fast1":
            return scores_row.fast1
    raise UserError(f"unknown metric {name!r}", remedy=f"one of: {', '.join(METRICS)}")
