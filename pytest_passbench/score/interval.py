"""The interval of AS that the intervals of its speed-ups leave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score.es import evaluate, geomean
from pytest_passbench.score.subgraph import SPEEDUPS, Judged


@dataclass(frozen=True)
class Bounded:
    """A judged subgraph with the ends of its speed-up's 95 % interval. Both are the speed-up if there is none."""

    judged: Judged
    low: float | None = None
    high: float | None = None


def as_interval(
    tasks: Mapping[str, Sequence[Bounded]], settings: ScoreSettings, offset: float = 0.0
) -> tuple[float, float, float] | None:
    """Return AS with the ends of its 95 % interval; None if there are no tasks, or a speed was not measured.

    AS rises with each speed-up. So each subgraph's end moves log AS by some amount to one side, and these amounts are
    independent: they add as the root of the sum of squares. ``offset`` (log) is an error that all speed-ups may have
    in common on this machine. What it moves log AS by is added to that. Raises UserError on bad settings.
    """
    found = [evaluate([item.judged for item in group], settings).as_ for group in tasks.values()]
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return None
    score = geomean(known)
    assert score is not None
    down, up = (_moved(tasks.values(), known, end, offset, settings) for end in ("low", "high"))
    return score, score * _exp(-down), score * _exp(up)


def _moved(
    groups: Iterable[Sequence[Bounded]],
    known: Sequence[float],
    end: Literal["low", "high"],
    offset: float,
    settings: ScoreSettings,
) -> float:
    """Return how far (log) the mean of the tasks' AS, which are ``known``, moves towards an end."""
    squares = common = 0.0
    factor = math.exp(-offset if end == "low" else offset)
    for group, value in zip(groups, known, strict=True):
        ends = [getattr(item, end) for item in group]
        squares += sum(_shift(group, {index: ends[index]}, value, settings) ** 2 for index in range(len(group)))
        if offset:
            all_moved = {
                index: item.judged.speedup * factor for index, item in enumerate(group) if item.judged.speedup
            }
            common += _shift(group, all_moved, value, settings)
    return (math.sqrt(squares) + common) / len(known)


def _shift(
    group: Sequence[Bounded], ends: Mapping[int, float | None], value: float, settings: ScoreSettings
) -> float:
    """Return how far (log) the AS of a task moves from ``value`` if some of its speed-ups are others."""
    low, high = SPEEDUPS
    moved = [item.judged for item in group]
    for index, end in ends.items():
        if end is not None and moved[index].speedup is not None:
            moved[index] = replace(moved[index], speedup=min(high, max(low, end)))
    other = evaluate(moved, settings).as_
    assert other is not None
    return abs(math.log(other / value))


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf  # exp overflows
