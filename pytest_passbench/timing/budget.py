"""The time budget of a run (``--passbench-budget``), divided among its subgraphs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_passbench.timing.looks import FIRST_LOOK
from pytest_passbench.timing.rounds import MAX_PAIR_SECONDS

#: The fewest seconds of timed blocks per pair. With less, a run spends its time on forks and warming up.
MIN_PAIR_SECONDS = 0.004
#: The share of a run's time for the first looks. Later looks and all else take the rest.
FIRST_SHARE = 0.7


def pair_seconds(fixed: Sequence[float], budget: float) -> float:
    """Return the seconds of timed blocks that a pair may have.

    They are chosen so that the first look of every subgraph fits into :data:`FIRST_SHARE` of ``budget`` (seconds).
    ``fixed`` holds the other seconds that a pair of each subgraph costs: forks and warming up.

    A short budget takes rounds away from the pairs, not pairs from the estimate, since rounds cannot remove the
    spread between processes. The result lies between :data:`MIN_PAIR_SECONDS` and
    :data:`pytest_passbench.timing.rounds.MAX_PAIR_SECONDS`, the default. So a budget that is too short is not
    kept.
    """
    if not fixed:
        return MAX_PAIR_SECONDS
    left = FIRST_SHARE * budget / FIRST_LOOK - math.fsum(fixed)
    return min(MAX_PAIR_SECONDS, max(MIN_PAIR_SECONDS, left / len(fixed)))
