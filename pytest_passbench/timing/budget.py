"""A run's time budget (``--passbench-budget``): where to spend it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_passbench.timing.looks import LOOKS
from pytest_passbench.timing.rounds import LONGEST_PAIR

#: The fewest seconds of timed blocks per pair: below, forking and warming up is all that a run does.
LEAST_PAIR = 0.004


def pair_seconds(fixed: Sequence[float], budget: float, share: float = 0.7) -> float:
    """Seconds of timed blocks that a pair may have so that every subgraph's first look fits ``share`` of the budget.

    A short budget takes rounds from the pairs, not pairs from the estimate: the spread between processes is
    what rounds cannot remove. ``fixed``: what a pair of each subgraph costs besides (forks, warm-up), in
    seconds. Between :data:`LEAST_PAIR`, where a still shorter budget cannot be kept, and the default.
    """
    if not fixed:
        return LONGEST_PAIR
    left = share * budget / LOOKS[0] - math.fsum(fixed)
    return min(LONGEST_PAIR, max(LEAST_PAIR, left / len(fixed)))
