"""Measure arms against the first one on a clock: pairs of fresh processes, looks, and when to stop."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from pytest_passbench.timing.clock import Block, Clock
from pytest_passbench.timing.estimate import Estimate, enough, log_ratio, median_error
from pytest_passbench.timing.looks import Decision, Stopping
from pytest_passbench.timing.rounds import Shape, disturbed, orderless, orders, undisturbed

Round = dict[str, Block]


@dataclass
class Arms:
    """What was measured. ``pairs[i]`` holds pair i's rounds, one block per arm in each, in the order in which
    they ran. ``arms[0]`` is eager.

    ``noisy`` says of each round whether others disturbed it. Nothing is dropped here: what an estimate uses
    is chosen in :meth:`log_ratios`, so the rest stays on record.
    """

    arms: tuple[str, ...]
    pairs: list[list[Round]] = field(default_factory=list)
    noisy: Callable[[Block], bool] = lambda block: disturbed(block.noise)
    _known: dict[str, list[list[tuple[float, bool]]]] = field(default_factory=dict, repr=False)

    def log_ratios(self, arm: str) -> list[list[float]]:
        """Per pair the log ratios eager / ``arm`` of the rounds in which neither of the two was disturbed
        (all of them where fewer than half remain), freed of what running first or second makes."""
        known = self._known.setdefault(arm, [])  # a pair that is here is complete
        known += [self._pair(rounds, arm) for rounds in self.pairs[len(known) :]]
        return orderless(known)

    def _pair(self, rounds: Sequence[Round], arm: str) -> list[tuple[float, bool]]:
        eager, noisy = self.arms[0], self.noisy
        flags = [noisy(item[eager]) or noisy(item[arm]) for item in rounds]
        return [
            (log_ratio(item[eager].per_call, item[arm].per_call), _before(eager, arm, item))
            for item in undisturbed(rounds, flags)
        ]

    def per_call(self, arm: str) -> float:
        """Median seconds per call of ``arm`` over all blocks."""
        return median(item[arm].per_call for rounds in self.pairs for item in rounds)

    @property
    def seconds(self) -> float:
        """Timed seconds of all blocks."""
        return sum(block.seconds for rounds in self.pairs for item in rounds for block in item.values())

    @property
    def disturbed_share(self) -> float:
        """The share of rounds in which any arm was disturbed."""
        flags = [any(map(self.noisy, item.values())) for rounds in self.pairs for item in rounds]
        return sum(flags) / len(flags) if flags else 0.0


def _before(one: str, other: str, item: Round) -> bool:
    """Whether ``one`` ran before ``other``."""
    order = list(item)
    return order.index(one) < order.index(other)


@dataclass(frozen=True)
class Result:
    """An arm's ratio eager / arm, and why measuring stopped."""

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
) -> tuple[Arms, dict[str, Result]]:
    """Measure until every arm but the first has its verdict or the budget is spent.

    ``earlier`` continues what an earlier call measured, at the next paid look (``stopping.max_pairs`` is
    MAX_PAIRS for what is measured again at the end of a run). The time budget counts timed blocks.
    """
    measured = earlier if earlier is not None else Arms(tuple(arms))
    look = stopping.next_look(len(measured.pairs))
    results = decide(measured, stopping, clock.resolution, shape) if look is None else {}
    while look is not None:
        while len(measured.pairs) < look:
            measured.pairs.append(measure_pair(clock, arms, shape, rng))
        results = decide(measured, stopping, clock.resolution, shape)
        if all(result.decision.stop for result in results.values()):
            break
        look = stopping.next_look(look)
    return measured, results


def measure_pair(clock: Clock, arms: Sequence[str], shape: Shape, rng: random.Random) -> list[Round]:
    """The rounds of one pair of fresh processes: as many as its value needs, of those that ``shape`` allows."""
    clock.fresh()
    rounds = _rounds(clock, arms, shape, shape.rounds, rng)
    while len(rounds) + shape.more <= shape.most and (vague := _vagueness(arms, rounds, shape.precise)) > 1:
        wanted = (vague**2 - 1) * len(rounds)  # the error goes with the root of their number
        count = min(max(wanted, shape.more), len(rounds), shape.most - len(rounds))
        rounds += _rounds(clock, arms, shape, int(count) // 2 * 2, rng)
    return rounds


def _rounds(clock: Clock, arms: Sequence[str], shape: Shape, count: int, rng: random.Random) -> list[Round]:
    return [{arm: clock.block(arm, shape.calls) for arm in order} for order in orders(arms, count, rng)]


def _vagueness(arms: Sequence[str], rounds: list[Round], precise: float | None) -> float:
    """A pair's standard error as a multiple of what is precise enough, of the arm where it is largest."""
    pair = Arms(tuple(arms), [rounds])
    ratios = [pair.log_ratios(arm)[0] for arm in arms[1:]]
    return max((median_error(values) / enough(values, precise) for values in ratios), default=0.0)


def decide(measured: Arms, stopping: Stopping, resolution: float, shape: Shape) -> dict[str, Result]:
    """Every arm's estimate and decision on what is measured so far."""
    results = {}
    for arm in measured.arms[1:]:
        step = resolution / (shape.calls * min(measured.per_call(measured.arms[0]), measured.per_call(arm)))
        pairs = measured.log_ratios(arm)
        results[arm] = Result(*stopping.look(pairs, spent=measured.seconds, resolution=step))
    return results
