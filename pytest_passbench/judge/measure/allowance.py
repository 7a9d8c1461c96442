"""How long a subgraph may be measured: its most pairs and seconds, with and without ``--passbench-budget``.

With a budget, a subgraph's share is the time left, divided by the subgraphs left. Time that it does not use goes to
the later ones. The budget is wall time, so it includes building, waiting for a core, and a busy machine's slowness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from pytest_passbench.timing.looks import FIRST_LOOK, TO_EAGER, TO_REFERENCE
from pytest_passbench.timing.rounds import BLOCK_SECONDS, MAX_PAIR_SECONDS, PAIR_SECONDS, BlockLength, Shape, shape

#: The fewest seconds of timed blocks per pair. With less, a run spends its time on forks and warming up.
MIN_PAIR_SECONDS = 0.004
#: The share of a run's time for the first looks. Later looks and all else take the rest.
FIRST_SHARE = 0.7

#: Phases of a subgraph's time that do not come with every pair.
OUTSIDE_PAIRS = ("read", "build", "inputs", "wait", "end", "other", "verify", "audit", "held out")
LATEST = 20  # number of the latest costs, which alone count
#: Guesses until costs are known: a pair without its blocks (forks, warm-up, inputs), a subgraph without its pairs.
PAIR_COST_SECONDS, SUBGRAPH_COST_SECONDS = 0.025, 0.1


@dataclass(frozen=True)
class Allowance:
    """The limits of a subgraph's measurement.

    ``pair`` is the most seconds of timed blocks of a pair, and ``seconds`` those of all pairs (None: no limit).
    ``pairs`` is the greatest number of pairs. ``precise`` is the precision that a pair's value should have
    (:class:`~pytest_passbench.timing.rounds.Shape`).
    """

    pair: float = MAX_PAIR_SECONDS
    seconds: float | None = None
    pairs: int = TO_EAGER.pairs[-2]
    precise: float | None = None

    def shape(self, call: float, block: float, usual: float, max_calls: int) -> Shape:
        """Return the calls and rounds of a pair, for a subgraph whose slowest arm takes ``call`` seconds.

        Its blocks take about ``block`` seconds, and have ``max_calls`` calls at most. The clock's blocks usually take
        ``usual`` seconds.
        """
        first = PAIR_SECONDS * usual / BLOCK_SECONDS
        return shape(
            call, target=block, first=first, pair=self._pair(usual), max_calls=max_calls, precise=self.precise
        )

    def block_length(self, usual: float, max_calls: int) -> BlockLength:
        """Return the length of blocks, for a clock whose blocks usually take ``usual`` seconds."""
        return BlockLength(usual, self._pair(usual), max_calls)

    def _pair(self, usual: float) -> float:
        """Return the most seconds of a pair: more for a clock with longer blocks, unless all pairs have a limit."""
        return self.pair * (usual / BLOCK_SECONDS if self.seconds is None else 1.0)


#: What a subgraph may take in a run without a budget: the pairs of the first look, cut short on a noisy machine.
DEFAULT = Allowance(pair=0.024, pairs=FIRST_LOOK)
#: What a subgraph may take in a call of an evaluator, which must answer soon: as many pairs, of fewer rounds.
QUICK = Allowance(pair=0.006, pairs=FIRST_LOOK)
#: What it may take when it is measured again because noise left it open. The rounds are noisy, so pairs are longer.
REMEASURED = Allowance(seconds=4.0, pairs=TO_EAGER.pairs[-1], precise=0.01)
#: The same beside a reference.
REMEASURED_TO_REFERENCE = replace(REMEASURED, seconds=6.0, pairs=TO_REFERENCE.pairs[-1])


@dataclass
class Budget:
    """A run's budget in seconds of wall time, spent evenly over ``expected`` subgraphs.

    Without one (None), each subgraph has the ``usual`` allowance.

    It begins with the first subgraph, not with the start of the sandboxes. Costs are kept by the number of arms: a
    baseline compiles for seconds, so a case with one says little of the next candidate's case without one.
    """

    seconds: float | None
    expected: int = 0
    usual: Allowance = DEFAULT
    clock: Callable[[], float] = time.monotonic
    _end: float = 0.0
    _done: int = 0
    _costs: dict[int, list[tuple[float, float]]] = field(default_factory=dict)  # of a pair, and without pairs
    _totals: list[float] = field(default_factory=list)

    def renewed(self, usual: Allowance) -> Budget:
        """Return the budget of a later run of the same judge, which knows the costs of this one."""
        costs = {arms: values[-LATEST:] for arms, values in self._costs.items()}
        return Budget(self.seconds, usual=usual, clock=self.clock, _costs=costs)

    def begin(self, subgraphs: int, expected: int = 0) -> None:
        """Note that a task with so many subgraphs comes next, of ``expected`` in the whole run, if that is known."""
        if self.seconds is not None and not self._end:
            self._end = self.clock() + self.seconds
        self.expected = max(expected or self.expected, self._done + subgraphs)

    def allowance(self, arms: int) -> Allowance:
        """Return the allowance of the next subgraph, with so many arms."""
        if self.seconds is None:
            return self.usual
        share = (self._end - self.clock()) / max(1, self.expected - self._done)
        values = self._costs.get(arms) or [costs for group in self._costs.values() for costs in group]
        left = max(0.0, share - _mean([other for _, other in values], SUBGRAPH_COST_SECONDS))
        cost = _mean([pair for pair, _ in values], PAIR_COST_SECONDS * arms / 2)
        # A short budget takes rounds away from the pairs, not pairs from the estimate, since rounds cannot remove the
        # spread between processes. A pair has MIN_PAIR_SECONDS in any case, so a run may exceed a short budget.
        pair = min(MAX_PAIR_SECONDS, max(MIN_PAIR_SECONDS, FIRST_SHARE * left / FIRST_LOOK - cost))
        return Allowance(pair, left * pair / (pair + cost))

    def done(self, durations: Mapping[str, float], pairs: int, arms: int) -> None:
        """Note the seconds by phase of a subgraph with so many pairs and arms. Starting sandboxes is not counted."""
        seconds = sum(spent for phase, spent in durations.items() if phase != "start")
        other = sum(spent for phase, spent in durations.items() if phase in OUTSIDE_PAIRS)
        self._done += 1
        self._totals.append(seconds)
        if pairs:
            pair = max(0.0, seconds - other - durations.get("blocks", 0.0)) / pairs
            self._costs.setdefault(arms, []).append((pair, other))

    def skip(self) -> None:
        """Note a subgraph that took no time, since there was nothing to judge."""
        self._done += 1

    def spare(self, cost: float) -> bool:
        """Return True if ``cost`` more seconds leave each later subgraph as much time as those so far have taken."""
        left = max(0, self.expected - self._done)
        return self.seconds is None or self._end - self.clock() > cost + left * _mean(self._totals, 0.0)


def _mean(values: list[float], default: float) -> float:
    """Return the mean of the latest values, since a machine changes. Return ``default`` if there are no values."""
    return fmean(values[-LATEST:]) if values else default
