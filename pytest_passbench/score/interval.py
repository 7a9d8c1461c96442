"""The interval of AS that the intervals of its speed-ups leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    independent: they add as the root of the sum of squares. ``offset`` (log) is what all speed-ups may have in common
    on this machine; its part that AS would feel is at most all of it. Raises UserError on bad settings.
    """
    found = [evaluate([item.judged for item in group], settings).as_ for group in tasks.values()]
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return None
    score = geomean(known)
    assert score is not None
    down = up = 0.0
    measured = False
    for group, value in zip(tasks.values(), known, strict=True):
        for index, item in enumerate(group):
            if item.judged.speedup is None:
                continue
            measured = True
            down += _shift(group, index, item.low, value, settings) ** 2
            up += _shift(group, index, item.high, value, settings) ** 2
    common = offset if measured else 0.0
    low = score * math.exp(-math.sqrt(down) / len(known) - common)
    return score, low, score * _exp(math.sqrt(up) / len(known) + common)


def _shift(group: Sequence[Bounded], index: int, end: float | None, value: float, settings: ScoreSettings) -> float:
    """Return how far (log) AS moves if a subgraph's speed-up is at this end of its interval."""
    if end is None:
        return 0.0
    low, high = SPEEDUPS
    moved = [item.judged for item in group]
    moved[index] = replace(moved[index], speedup=min(high, max(low, end)))
    other = evaluate(moved, settings).as_
    assert other is not None
    return math.log(other / value)


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf  # exp overflows
