"""The measurement of arms against the first one: pairs of fresh processes, and looks that decide when to stop.

The arms' blocks are timed by a clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean, median
from typing import Protocol

from pytest_passbench.timing.estimate import Estimate, enough, estimate, log_ratio, median_error
from pytest_passbench.timing.looks import Decision, Stopping
from pytest_passbench.timing.rounds import Disturbance, Shape, disturbed, orderless, orders, undisturbed

#: With fewer pairs than this, an interval has no end.
FEWEST_PAIRS = 2


@dataclass(frozen=True)
class Block:
    """A timed block of ``calls`` calls. ``seconds`` is its time less the cost of an empty block."""

    seconds: float
    calls: int
    noise: Disturbance

    @property
    def per_call(self) -> float:
        """Seconds per call."""
        return self.seconds / self.calls

    @property
    def whole_per_call(self) -> float:
        """Seconds per call with nothing taken off."""
        return self.noise.seconds / self.calls


Round = dict[str, Block]


class Clock(Protocol):
    """A way of timing the arms, on the judge's side. If a runner fails, its methods raise the judge's own error.

    ``resolution`` is the clock's step in seconds.
    """

    @property
    def resolution(self) -> float: ...

    def fresh(self) -> None:
        """Begin a pair: replace the processes of all arms by new, stopped ones that are warm."""

    def block(self, arm: str, calls: int) -> Block:
        """Return the time of a block of ``calls`` calls of ``arm``, on inputs that it has not seen.

        Every other arm stays stopped.
        """


@dataclass
class Arms:
    """The blocks of all arms, measured so far. ``arms[0]`` is eager.

    ``pairs[i]`` holds the rounds of pair i, each with one block per arm in the order in which they ran.
    No block is dropped here: :meth:`log_ratios` chooses those that an estimate uses, so the rest stays on record.

    Each arm but the first has a ratio to it, by the arm's own name. ``ratios`` names further ones of two arms, as
    (first, second). If there are any, they alone decide how long to measure.
    """

    arms: tuple[str, ...]
    pairs: list[list[Round]] = field(default_factory=list)
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    _pair_values: dict[str, list[list[tuple[float, bool]]]] = field(default_factory=dict, repr=False)

    @property
    def deciding(self) -> tuple[str, ...]:
        """The names of the ratios that decide how long to measure."""
        return tuple(self.ratios) or self.arms[1:]

    def sides(self, name: str) -> tuple[str, str]:
        """Return the two arms of a ratio: the time of the first is divided by that of the second."""
        return self.ratios.get(name, (self.arms[0], name))

    def log_ratios(self, name: str) -> list[list[float]]:
        """Return the log ratios of each pair, without the effect of the order in a round.

        ``name`` is an arm, for eager / arm, or one of ``ratios``.
        Only rounds in which neither arm was disturbed count, or all if fewer than half of them remain.
        """
        complete = self._pair_values.setdefault(name, [])  # pairs in here are complete, so they do not change
        complete += [self._pair(rounds, *self.sides(name)) for rounds in self.pairs[len(complete) :]]
        return orderless(complete)

    def whole_ratio(self, name: str) -> Estimate:
        """Return the estimate of a ratio from the same rounds, with nothing taken off the times of their blocks."""
        return estimate(self._whole(name))

    def greatest_whole_ratio(self, name: str) -> float:
        """Return the greatest geometric mean ratio of a pair, from the rounds and times of :meth:`whole_ratio`."""
        return math.exp(max(fmean(values) for values in self._whole(name)))

    def _whole(self, name: str) -> list[list[float]]:
        time = attrgetter("whole_per_call")
        return orderless([self._pair(rounds, *self.sides(name), time=time) for rounds in self.pairs])

    def _pair(
        self,
        rounds: Sequence[Round],
        first: str,
        second: str,
        time: Callable[[Block], float] = lambda block: block.per_call,
    ) -> list[tuple[float, bool]]:
        flags = [disturbed(item[first].noise) or disturbed(item[second].noise) for item in rounds]
        values = []
        for item in undisturbed(rounds, flags):
            order = list(item)
            in_order = order.index(first) < order.index(second)
            values.append((log_ratio(time(item[first]), time(item[second])), in_order))
        return values

    def per_call(self, arm: str) -> float:
        """Return the median seconds per call of ``arm`` over all blocks."""
        return median(item[arm].per_call for rounds in self.pairs for item in rounds)

    @property
    def seconds(self) -> float:
        """Seconds of all timed blocks."""
        return sum(block.seconds for rounds in self.pairs for item in rounds for block in item.values())

    @property
    def disturbed_share(self) -> float:
        """The share of rounds in which any arm was disturbed."""
        flags = [any(disturbed(block.noise) for block in item.values()) for rounds in self.pairs for item in rounds]
        return sum(flags) / len(flags) if flags else 0.0


@dataclass(frozen=True)
class MeasuredRatio:
    """A ratio of two arms, and the reason why measuring stopped."""

    estimate: Estimate
    decision: Decision


def measure(
    clock: Clock,
    arms: Sequence[str],
    shape: Shape,
    stopping: Stopping,
    rng: random.Random,
    *,
    earlier: Arms | None = None,
    more: Callable[[], bool] = lambda: True,
    ratios: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Arms, dict[str, MeasuredRatio]]:
    """Measure until every ratio that decides has its verdict or the budget is spent.

    These are the ``ratios``, or without any those of every arm to the first (:class:`Arms`).
    Return the blocks, and the result of every ratio by its name. ``earlier`` continues an earlier measurement at
    the next look, with a larger ``stopping.max_pairs``. The time budget counts timed blocks only. ``more`` is asked
    before each pair: if it returns False, measuring ends between two looks, but not before :data:`FEWEST_PAIRS`.
    """
    measured = earlier if earlier is not None else Arms(tuple(arms))
    measured.ratios = ratios or {}
    look = stopping.next_look(len(measured.pairs))
    results = decide(measured, stopping, clock.resolution, shape) if look is None else {}
    while look is not None:
        while len(measured.pairs) < look:
            if not more() and len(measured.pairs) >= FEWEST_PAIRS:
                return measured, _cut_short(decide(measured, stopping, clock.resolution, shape))
            measured.pairs.append(measure_pair(clock, arms, shape, rng, measured.ratios))
        results = decide(measured, stopping, clock.resolution, shape)
        if all(results[name].decision.stop for name in measured.deciding):
            break
        look = stopping.next_look(look)
    return measured, results


def _cut_short(results: dict[str, MeasuredRatio]) -> dict[str, MeasuredRatio]:
    return {
        name: result if result.decision.stop else replace(result, decision=replace(result.decision, reason="time"))
        for name, result in results.items()
    }


def measure_pair(
    clock: Clock,
    arms: Sequence[str],
    shape: Shape,
    rng: random.Random,
    ratios: Mapping[str, tuple[str, str]] | None = None,
) -> list[Round]:
    """Return the rounds of a pair of fresh processes, as many as its deciding ratios need and ``shape`` allows."""
    clock.fresh()
    rounds = _rounds(clock, arms, shape, shape.rounds, rng)
    while len(rounds) + shape.more <= shape.max_rounds:
        vague = _vagueness(Arms(tuple(arms), [rounds], ratios=ratios or {}), shape.precise)
        if vague <= 1:
            break
        extra_rounds = (vague**2 - 1) * len(rounds)  # the error falls with the root of the number of rounds
        count = min(max(extra_rounds, shape.more), len(rounds), shape.max_rounds - len(rounds))
        rounds += _rounds(clock, arms, shape, int(count) // 2 * 2, rng)
    return rounds


def _rounds(clock: Clock, arms: Sequence[str], shape: Shape, count: int, rng: random.Random) -> list[Round]:
    return [{arm: clock.block(arm, shape.calls) for arm in order} for order in orders(arms, count, rng)]


def _vagueness(pair: Arms, precise: float | None) -> float:
    """Return the largest standard error of a deciding ratio, in multiples of the one that is precise enough."""
    ratios = [pair.log_ratios(name)[0] for name in pair.deciding]
    return max((median_error(values) / enough(values, precise) for values in ratios), default=0.0)


def decide(measured: Arms, stopping: Stopping, resolution: float, shape: Shape) -> dict[str, MeasuredRatio]:
    """Return the estimate and decision of every ratio by its name, from the blocks measured so far.

    ``resolution`` is the clock's step in seconds.
    """
    results = {}
    for name in (*measured.arms[1:], *measured.ratios):
        step = resolution / (shape.calls * min(map(measured.per_call, measured.sides(name))))
        pairs = measured.log_ratios(name)
        results[name] = MeasuredRatio(*stopping.look(pairs, spent=measured.seconds, resolution=step))
    return results
