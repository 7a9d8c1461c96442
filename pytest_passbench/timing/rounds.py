"""Rounds of a pair: the order of the arms, the length of a block, and the rounds that others disturbed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

T = TypeVar("T")

MAX_STOLEN = 0.01  # share of a block's time for which others had its core
MAX_NEW_PAGES = 4  # few small pages cost little; a huge page, 512 of them, costs as much as a block or more

#: Blocks of this length keep the cost of stopping and continuing a runner near 2 %. Longer ones would more often be
#: interrupted by another process's timer tick.
BLOCK_SECONDS = 0.5e-3
#: A process that has just woken has cold caches and cold tables of pages. So its first call takes longer, by 20 us on
#: one machine and 200 us on another. Blocks are made longer, up to so many times, until waking is at most this share
#: of each arm's block.
WAKING_SHARE, MAX_LONGER = 0.1, 4
SHORT_CALL_SECONDS = 1e-3  # a single call shorter than this does not show how much of it is waking
MIN_BLOCK_SHARE = 0.7  # of the length that is wanted: blocks that have it are long enough
#: Seconds of timed blocks per pair, both arms, if the blocks agree. The rest of the spread is then that of the
#: processes, which more blocks do not reduce.
PAIR_SECONDS = 0.016
#: If the blocks do not agree, a pair takes up to so many times as long: blocks cost less than processes.
MAX_LENGTHENING = 8
MAX_PAIR_SECONDS = MAX_LENGTHENING * PAIR_SECONDS
#: The fewest rounds of a pair, and the most that it begins with (even). With two rounds, the medians of six pairs can
#: agree by accident.
MIN_ROUNDS, MAX_FIRST_ROUNDS = 4, 24


@dataclass(frozen=True)
class Shape:
    """The size of a pair: ``rounds`` rounds (even) of one block of ``calls`` calls per arm.

    While the pair's value is vague, rounds are added, at most doubling them at a time, up to ``max_rounds`` in
    all (0: none is added). ``precise`` is the standard error (log) at which a value near 1 is not vague; None
    means the default.
    """

    calls: int
    rounds: int
    max_rounds: int = 0
    precise: float | None = None

    @property
    def more(self) -> int:
        """The fewest rounds that are added at a time; even, as all numbers of rounds."""
        return max(2, self.rounds // 4 * 2)


def orders(arms: Sequence[str], rounds: int, rng: random.Random) -> list[tuple[str, ...]]:
    """Return the order of the arms in each round: random, and balanced in pairs.

    Each order is directly followed or preceded by its reverse. So a linear drift over two rounds affects all arms
    alike. Over ``factorial(len(arms))`` rounds every order occurs equally often. ``rng`` is the judge's, since a
    candidate that knew the order could make use of it. Raises ValueError if ``rounds`` is odd or negative.
    """
    if rounds % 2 or rounds < 0:
        raise ValueError(f"the number of rounds must be even, not {rounds}")
    result: list[tuple[str, ...]] = []
    while len(result) < rounds:
        result.extend(_cycle(arms, rng))
    return result[:rounds]


def _cycle(arms: Sequence[str], rng: random.Random) -> list[tuple[str, ...]]:
    """Return every order once, as shuffled couples of an order and its reverse."""
    places = itertools.permutations(range(len(arms)))
    couples = [[place, place[::-1]] for place in places if place <= place[::-1]]
    rng.shuffle(couples)
    for couple in couples:
        rng.shuffle(couple)
    return [tuple(arms[i] for i in place) for couple in couples for place in couple]


def calls_per_block(call: float, target: float = BLOCK_SECONDS, max_calls: int = 1 << 16) -> int:
    """Return how many calls of ``call`` seconds make a block of about ``target`` seconds: 1 to ``max_calls``."""
    if call <= 0:
        return max_calls
    return max(1, min(max_calls, round(target / call)))


@dataclass
class BlockLength:
    """The ``seconds`` of a subgraph's blocks: the ``usual`` ones, or more if waking has too large a share of those.

    ``pair`` has the seconds of a pair, ``max_calls`` the most calls of a block.
    """

    usual: float
    pair: float
    max_calls: int
    seconds: float = field(init=False)
    _single: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seconds = self.usual

    def suffices(self, calls: int, per_call: Mapping[str, float]) -> bool:
        """Set ``seconds``, and return True if blocks of so many calls are long enough, or cannot be longer.

        ``per_call`` has the seconds per call of each arm. The first question is about a single call.
        """
        if calls == 1:
            self._single = dict(per_call)
        else:
            longest = min(MAX_LONGER * self.usual, self.pair / (2 * MIN_ROUNDS))
            self.seconds = max(self.usual, min(awake_seconds(self._single, per_call, calls), longest))
        slowest = max(per_call.values())
        is_short = calls == 1 and slowest < SHORT_CALL_SECONDS
        return calls == self.max_calls or (calls * slowest > MIN_BLOCK_SHARE * self.seconds and not is_short)

    def longer(self, calls: int, call: float) -> int:
        """Return the calls of the next blocks to try, after those of ``calls``, that took ``call`` seconds each."""
        return max(calls_per_block(call, self.seconds, self.max_calls), min(2 * calls, self.max_calls))


def awake_seconds(single: Mapping[str, float], several: Mapping[str, float], calls: int) -> float:
    """Return how long a block of the slowest arm has to be for waking to be :data:`WAKING_SHARE` of each arm's.

    ``single`` has the seconds of an arm's block of one call, ``several`` those per call of a block of ``calls`` (two
    or more). Waking is the time by which a single call takes longer than each further one. All are seconds.
    """
    pace, needed = dict[str, float](), 0.0
    for arm, per_call in several.items():
        pace[arm] = max((calls * per_call - single[arm]) / (calls - 1), WAKING_SHARE * per_call)
        needed = max(needed, (single[arm] - pace[arm]) / (WAKING_SHARE * pace[arm]))
    return needed * max(pace.values(), default=0.0)


def shape(
    call: float,
    *,
    target: float = BLOCK_SECONDS,
    first: float = PAIR_SECONDS,
    pair: float = MAX_PAIR_SECONDS,
    max_calls: int = 1 << 16,
    precise: float | None = None,
) -> Shape:
    """Return the calls and rounds of a pair for a subgraph whose slowest arm takes ``call`` seconds.

    A block takes about ``target`` seconds. A pair begins with ``first`` seconds of blocks for every two arms, and may
    take ``pair``. It goes on until its value is as ``precise`` as asked. It begins with at most
    :data:`MAX_FIRST_ROUNDS` rounds. Long calls get fewer rounds, but at least :data:`MIN_ROUNDS`.
    """
    calls = calls_per_block(call, target, max_calls)
    each = max(2 * calls * call, 1e-9)
    rounds = max(MIN_ROUNDS, min(MAX_FIRST_ROUNDS, int(min(pair, first) / each)) // 2 * 2)
    return Shape(calls, rounds, min(MAX_LENGTHENING * rounds, int(pair / each)), precise)


@dataclass(frozen=True)
class Disturbance:
    """Signs that something else ran during a block of ``seconds`` seconds.

    ``throttled``: power or heat slowed a device down. ``stolen`` is the seconds that the runner or the judge waited
    in the run queue. ``touched`` counts pages of memory that the runner used for the first time.
    """

    seconds: float
    throttled: bool = False
    stolen: float = 0.0
    touched: int = 0


def disturbed(noise: Disturbance) -> bool:
    """Return True if others disturbed a block.

    The signs are a throttled device, more than the share :data:`MAX_STOLEN` of its time stolen, or more than
    :data:`MAX_NEW_PAGES` new pages. The cost of new pages depends on the machine. Only these counts decide,
    never the measured time: that would be dropping outliers.
    """
    return noise.throttled or noise.stolen > MAX_STOLEN * noise.seconds or noise.touched > MAX_NEW_PAGES


def undisturbed(rounds: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """Return the rounds of a pair to use, in order: those in which *no* arm was disturbed.

    ``flags`` holds True for each disturbed round. A round is dropped as a whole, so all arms lose the same. If
    fewer than half would remain, all are kept: on a busy core, the few quiet rounds would be a biased choice.
    """
    quiet = [item for item, flag in zip(rounds, flags, strict=True) if not flag]
    return quiet if 2 * len(quiet) >= len(rounds) else list(rounds)


def orderless(pairs: Sequence[Sequence[tuple[float, bool]]]) -> list[list[float]]:
    """Return each pair's log ratios without the effect of the order, from (log ratio, whether eager ran first).

    The arm that runs second finds the caches full of the first arm's data. So the ratios have two modes, and a
    pair's median could lie anywhere between. Both modes are moved to the middle of their medians over *all*
    pairs. The program causes the two modes, not the process, so the differences between pairs stay. If one
    order does not occur, the ratios stay as they are.
    """
    modes = [[value for rounds in pairs for value, flag in rounds if flag is side] for side in (False, True)]
    shift = (median(modes[1]) - median(modes[0])) / 2 if all(modes) else 0.0
    return [[value - shift if flag else value + shift for value, flag in rounds] for rounds in pairs]
