"""``--passbench-budget``: what each subgraph may take, when the whole run may take only so long.

A subgraph's share is what is left, divided by the subgraphs left. What it does not use goes to those after it; so
the clock of the wall decides, and building, waiting for a core and a busy machine are all paid for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from pytest_passbench.timing.budget import pair_seconds
from pytest_passbench.timing.looks import LOOKS, MAX_PAIRS, USUAL_PAIRS
from pytest_passbench.timing.rounds import LONGEST_PAIR

#: What a pair costs besides its blocks (forks, warm-up, inputs), and a subgraph besides its pairs, until known.
PAIR_COST, SUBGRAPH_COST = 0.025, 0.1


@dataclass(frozen=True)
class Allowance:
    """What one subgraph may take: seconds of timed blocks a pair at the longest, and in all (None: no limit), the
    number of pairs; and how ``precise`` a pair's value is to be (:class:`~pytest_passbench.timing.rounds.Shape`)."""

    pair: float = LONGEST_PAIR
    seconds: float | None = None
    pairs: int = USUAL_PAIRS
    precise: float | None = None


#: What a subgraph may take in a run without a budget: the pairs of the first look, on a noisy machine cut short.
DEFAULT = Allowance(pair=0.024, pairs=LOOKS[0])
#: What it may take when it is measured again because noise left it open. The rounds are noisy, so pairs are longer.
AGAIN = Allowance(seconds=4.0, pairs=MAX_PAIRS, precise=0.01)


@dataclass
class Budget:
    """A run's budget in seconds of wall time (None: as long as it takes), spent evenly over ``expected`` subgraphs.

    It begins with the first subgraph, not with the start of the sandboxes.
    """

    seconds: float | None
    expected: int = 0
    clock: Callable[[], float] = time.monotonic
    _end: float = 0.0
    _done: int = 0
    _pair_costs: list[float] = field(default_factory=list)
    _other_costs: list[float] = field(default_factory=list)
    _totals: list[float] = field(default_factory=list)

    def begin(self, subgraphs: int) -> None:
        """A task of so many subgraphs comes next; at least these are expected."""
        if self.seconds is not None and not self._end:
            self._end = self.clock() + self.seconds
        self.expected = max(self.expected, self._done + subgraphs)

    def allowance(self, arms: int) -> Allowance:
        """Return what the next subgraph of so many arms may take; DEFAULT if there is no budget to keep."""
        if self.seconds is None:
            return DEFAULT
        share = (self._end - self.clock()) / max(1, self.expected - self._done)
        left = max(0.0, share - _mean(self._other_costs, SUBGRAPH_COST))
        cost = _mean(self._pair_costs, PAIR_COST * arms / 2)
        pair = pair_seconds([cost], left)
        return Allowance(pair, left * pair / (pair + cost))

    def done(self, seconds: float, blocks: float, pairs: int, other: float) -> None:
        """A subgraph took so many seconds: of timed blocks, of pairs, and for all but its pairs (``other``)."""
        self._done += 1
        self._totals.append(seconds)
        if pairs:
            self._pair_costs.append(max(0.0, seconds - other - blocks) / pairs)
            self._other_costs.append(other)

    def skip(self) -> None:
        """A subgraph took no time: there was nothing to judge."""
        self._done += 1

    def spare(self, cost: float) -> bool:
        """Whether ``cost`` more seconds leave every subgraph to come what those so far have taken."""
        left = max(0, self.expected - self._done)
        return self.seconds is None or self._end - self.clock() > cost + left * _mean(self._totals, 0.0)


def _mean(values: list[float], default: float) -> float:
    """Of the latest: a machine changes."""
    return fmean(values[-20:]) if values else default
