"""The interval of AS, and that of the ratio of two AS, from the intervals of the speed-ups (docs/board.md).

AS is a weighted product, so its logarithm is a sum with one term for each subgraph. The term is the weighted mean
over t of the log of what the subgraph counts at t, divided by the task's number of subgraphs and by the number of
tasks. Each term is computed at the ratio and at both ends of its interval. The errors of subgraphs are independent,
so half-widths add as the root of the sum of squares. Errors that all subgraphs may share are added in full. What a
failure counts has no error.

All logarithms here are natural, and half-widths are those of 95 %.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log
from statistics import NormalDist, fmean

from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score.es import WEIGHTS, ladder, unmeasured, worth
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.subgraph import NOT_JUDGED, SPEEDUPS, Judged

RESAMPLES = 2000
MIN_TASKS = 8
"""The least number of tasks for an interval over tasks: of fewer, resampling makes intervals that are too narrow."""

_STEP = 1e-3  # in logs, for the slope of a term


@dataclass(frozen=True)
class Term:
    """The logarithm of what a subgraph counts in AS, with the half-widths that measuring leaves.

    ``slope`` is the share of a common error of all speed-ups (in logs) that the term takes: 1 if its speed counts at
    every t, 0 for a failure.
    """

    log: float
    down: float
    up: float
    slope: float


Terms = Mapping[str, Mapping[str, Term]]
"""The terms of a row by task and subgraph. Subgraphs that were not judged have names of their own."""


def terms(tasks: Mapping[str, Sequence[Judged]], settings: ScoreSettings) -> Terms | None:
    """Return the terms of a row's AS; None if a speed that it needs was not measured, or if there are no tasks."""
    if not tasks or any(unmeasured(group, settings) for group in tasks.values()):
        return None
    full = {task: group or [Judged(NOT_JUDGED)] for task, group in tasks.items()}  # as the board counts it
    return {
        task: {item.name or f"{NOT_JUDGED} {index}": _term(item, settings) for index, item in enumerate(group)}
        for task, group in full.items()
    }


def eager_terms(like: Terms) -> Terms:
    """Return the terms of eager itself, whose AS is 1, on the subgraphs of another row."""
    return {task: dict.fromkeys(group, Term(0.0, 0.0, 0.0, 0.0)) for task, group in like.items()}


def mean_terms(parts: Sequence[Terms]) -> Terms:
    """Return the mean of each subgraph's terms in several runs. The runs' errors are assumed to be independent."""
    if len(parts) == 1:
        return parts[0]
    groups: dict[str, dict[str, list[Term]]] = {}
    for part in parts:
        for task, group in part.items():
            for name, term in group.items():
                groups.setdefault(task, {}).setdefault(name, []).append(term)
    return {task: {name: _mean(same) for name, same in group.items()} for task, group in groups.items()}


def _mean(same: Sequence[Term]) -> Term:
    down, up = (hypot(*sides) / len(same) for sides in ([term.down for term in same], [term.up for term in same]))
    return Term(fmean(term.log for term in same), down, up, fmean(term.slope for term in same))


def score(row_terms: Terms, shared: float) -> Interval:
    """Return AS with its interval. ``shared`` is the error (log) that all speed-ups may share."""
    every = [(1.0 / len(row_terms) / len(group), term) for group in row_terms.values() for term in group.values()]
    slope = sum(share * term.slope for share, term in every)
    down = hypot(*(share * term.down for share, term in every)) + shared * slope
    up = hypot(*(share * term.up for share, term in every)) + shared * slope
    return Interval.of_logs(sum(share * term.log for share, term in every), down, up)


@dataclass(frozen=True)
class Contrast:
    """The ratio of one row's AS to another's, on the subgraphs that both have.

    ``tasks`` has the log of the ratio for each task. ``common`` of ``all`` subgraphs are in both rows.
    """

    ratio: Interval
    tasks: Mapping[str, float]
    common: int
    all: int

    @property
    def ahead(self) -> int:
        """The number of tasks that have a higher AS in the first row."""
        return sum(value > 0 for value in self.tasks.values())

    def over_tasks(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the ratio if the tasks are a sample of more like them; None for few tasks.

        It is the percentile bootstrap's (Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13).
        The same tasks always give the same interval.
        """
        if len(self.tasks) < MIN_TASKS:
            return None
        draw, logs = random.Random(0), list(self.tasks.values())
        ratios = sorted(fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
        edge = round(0.025 * RESAMPLES)
        return exp(ratios[edge]), exp(ratios[-1 - edge])


def contrast(upper: Terms, lower: Terms, shared: float, comparisons: int) -> Contrast | None:
    """Return how the AS of ``upper`` compares with that of ``lower``; None if they have no subgraph in common.

    ``shared`` is the error (log) that all speed-ups of one row may share against those of the other. The interval is
    widened, after Bonferroni, so that with 95 % all of ``comparisons`` intervals are right together.
    """
    both = {task: sorted(group.keys() & lower[task].keys()) for task, group in upper.items() if task in lower}
    both = {task: names for task, names in both.items() if names}
    if not both:
        return None
    means: dict[str, float] = {}
    down, up, slope = [], [], 0.0
    for task, names in both.items():
        pairs = [(upper[task][name], lower[task][name]) for name in names]
        share = 1.0 / len(both) / len(pairs)
        means[task] = fmean(term.log - other.log for term, other in pairs)
        down += [share * side for term, other in pairs for side in (term.down, other.up)]
        up += [share * side for term, other in pairs for side in (term.up, other.down)]
        slope += share * sum(max(term.slope, other.slope) for term, other in pairs)
    wider, common = _bonferroni(comparisons), shared * slope
    judged = {(task, name) for row_terms in (upper, lower) for task, group in row_terms.items() for name in group}
    return Contrast(
        ratio=Interval.of_logs(fmean(means.values()), wider * hypot(*down) + common, wider * hypot(*up) + common),
        tasks=means,
        common=sum(map(len, both.values())),
        all=len(judged),
    )


def _term(item: Judged, settings: ScoreSettings) -> Term:
    if item.speedup is None or item.interval is None:
        return Term(_log_worth(item, settings), 0.0, 0.0, 0.0)
    least, most = SPEEDUPS
    middle = log(item.speedup)
    at, above, below = (_log_at(item, settings, middle + step) for step in (0.0, _STEP, -_STEP))
    slope = (above - below) / (2 * _STEP)
    low, high = (min(max(end, least), most) for end in item.interval)
    down = at - _log_at(item, settings, log(low))
    up = _log_at(item, settings, log(high)) - at
    # An interval without an end is infinitely wide, wherever the speed counts.
    down, up = (inf if side and end in SPEEDUPS else max(side, 0.0) for side, end in ((down, low), (up, high)))
    return Term(at, down, up, slope)


def _log_at(item: Judged, settings: ScoreSettings, speed: float) -> float:
    return _log_worth(replace(item, speedup=exp(speed)), settings)


def _log_worth(item: Judged, settings: ScoreSettings) -> float:
    """Return the weighted mean over t of the log of what a subgraph counts, with the null guard."""
    steps = ladder(settings.interpretation)
    total = sum(WEIGHTS[t] for t in steps)
    return sum(WEIGHTS[t] * log(worth(item, t, settings, guard=True)) for t in steps) / total


def _bonferroni(comparisons: int) -> float:
    """Return the factor by which normal intervals are wider if 95 % holds for all ``comparisons`` together."""
    quantile = NormalDist().inv_cdf
    return quantile(1.0 - 0.025 / max(1, comparisons)) / quantile(0.975)
