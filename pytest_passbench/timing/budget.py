"""A run's time budget (``--passbench-budget``): where to spend it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_passbench.timing.looks import LOOKS
from pytest_passbench.timing.rounds import PAIR

#: The fewest seconds of timed blocks per pair: below, forking and warming up is all that a run does.
LEAST_PAIR = 0.004


@dataclass(frozen=True)
class Spent:
    """One subgraph after its first look: the half width (log) of its interval, how many pairs that took, and
    the seconds that one more pair costs (blocks, forks and warm-up)."""

    half_width: float
    pairs: int
    cost: float


def pair_seconds(fixed: Sequence[float], budget: float, share: float = 0.7) -> float:
    """Seconds of timed blocks per pair so that every subgraph's first look fits ``share`` of the budget.

    A short budget takes rounds from the pairs, not pairs from the estimate: the spread between processes is
    what rounds cannot remove. ``fixed``: what a pair of each subgraph costs besides (forks, warm-up), in
    seconds. Between :data:`LEAST_PAIR`, where a still shorter budget cannot be kept, and the default.
    """
    if not fixed:
        return PAIR
    left = share * budget / LOOKS[0] - math.fsum(fixed)
    return min(PAIR, max(LEAST_PAIR, left / len(fixed)))


def allocate(
    spent: Mapping[str, Spent], budget: float, *, target: float = 0.01, max_pairs: int = LOOKS[-1]
) -> dict[str, int]:
    """How many pairs each subgraph should reach with ``budget`` more seconds: widest interval first.

    Greedy: the widest goes to its next look if that still fits, and is expected to shrink as 1/sqrt(pairs);
    until all are at ``target`` (log), at ``max_pairs``, or nothing fits. Whoever cannot be paid for is left
    as it is, so a cheap subgraph may still be served after a dear one. Names only those that get more.
    """
    queue = [(-item.half_width, name) for name, item in spent.items()]
    heapq.heapify(queue)
    result: dict[str, int] = {}
    while queue:
        width, name = heapq.heappop(queue)
        item, now = spent[name], result.get(name, spent[name].pairs)
        look = next((n for n in LOOKS if now < n <= max_pairs), None)
        if -width <= target or look is None or (look - now) * item.cost > budget:
            continue
        budget -= (look - now) * item.cost
        result[name] = look
        heapq.heappush(queue, (_shrunk(item, look), name))
    return result


def _shrunk(item: Spent, pairs: int) -> float:
    """Minus the half width to expect at ``pairs``. An infinite one (a single pair) counts as 100 %."""
    width = item.half_width if math.isfinite(item.half_width) else 1.0
    return -width * math.sqrt(max(item.pairs, 1) / pairs)
