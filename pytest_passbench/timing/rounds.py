"""Rounds: in which order the arms run, how long a block is, and which rounds others disturbed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")

FEW_PAGES = 4  # at 1 to 2 us each; a huge page is 512 of them, and takes 0.1 to 5 ms

#: A block this long keeps the cost of stopping and continuing a runner (about 11 us) near 2 %, and is short
#: enough that most blocks meet no timer tick of another process. Seconds.
BLOCK = 0.5e-3
#: Seconds of timed blocks per pair, both arms. Where the blocks agree, more of them would say no more: what then
#: differs is the processes.
PAIR = 0.016
#: Where they do not, a pair goes on for up to so many times as long: more blocks are cheaper than more processes.
LONGER = 8
LONGEST_PAIR = LONGER * PAIR
#: Of a pair (even): of two, the medians of six pairs agree by accident.
FEWEST_ROUNDS = 4


@dataclass(frozen=True)
class Shape:
    """How a pair is measured: ``rounds`` rounds (even) of one block of ``calls`` calls per arm; while its value is
    vague as many more as it seems to need, at most doubling them, up to ``most`` (0: no more). ``precise``: the
    standard error (log) of a value near 1 that is not vague; None for the default one."""

    calls: int
    rounds: int
    most: int = 0
    precise: float | None = None

    @property
    def more(self) -> int:
        """The fewest rounds that are added at a time: even, like all of them."""
        return max(2, self.rounds // 4 * 2)


def orders(arms: Sequence[str], rounds: int, rng: random.Random) -> list[tuple[str, ...]]:
    """The order of the arms in each round: random, and balanced in pairs.

    Each order is directly followed or preceded by its reverse, so whatever drifts linearly over two rounds
    hits all arms alike; over ``factorial(len(arms))`` rounds every order occurs equally often. ``rounds``
    must be even (ValueError). ``rng`` is the judge's: a candidate that knew the order could act on it.
    """
    if rounds % 2 or rounds < 0:
        raise ValueError(f"the number of rounds must be even, not {rounds}")
    result: list[tuple[str, ...]] = []
    while len(result) < rounds:
        result.extend(_cycle(arms, rng))
    return result[:rounds]


def _cycle(arms: Sequence[str], rng: random.Random) -> list[tuple[str, ...]]:
    """Every order once, as shuffled couples of an order and its reverse."""
    places = itertools.permutations(range(len(arms)))
    couples = [[place, place[::-1]] for place in places if place <= place[::-1]]
    rng.shuffle(couples)
    for couple in couples:
        rng.shuffle(couple)
    return [tuple(arms[i] for i in place) for couple in couples for place in couple]


def calls_per_block(call: float, target: float = BLOCK, max_calls: int = 1 << 16) -> int:
    """How many calls of ``call`` seconds make a block of about ``target`` seconds: 1 to ``max_calls``.

    ``max_calls`` is how many different inputs the judge has laid out for one block.
    """
    if call <= 0:
        return max_calls
    return max(1, min(max_calls, round(target / call)))


def shape(
    call: float,
    *,
    target: float = BLOCK,
    pair: float = LONGEST_PAIR,
    max_calls: int = 1 << 16,
    max_rounds: int = 24,
    precise: float | None = None,
) -> Shape:
    """Calls and rounds of a pair for a subgraph of ``call`` seconds (the slowest arm's), which may take ``pair``
    seconds of blocks for every two arms, and goes on until its value is as ``precise`` as asked.

    Long calls get fewer rounds, but at least :data:`FEWEST_ROUNDS`.
    """
    calls = calls_per_block(call, target, max_calls)
    each = max(2 * calls * call, 1e-9)
    rounds = max(FEWEST_ROUNDS, min(max_rounds, int(min(pair, PAIR) / each)) // 2 * 2)
    return Shape(calls, rounds, min(LONGER * rounds, int(pair / each)), precise)


@dataclass(frozen=True)
class Disturbance:
    """What happened to a block from outside. ``switches``: involuntary context switches of the runner
    (``nonvoluntary_ctxt_switches`` in /proc/PID/status); ``stolen``: seconds that its core was taken away
    (``steal`` in /proc/stat, or run-queue wait in /proc/PID/schedstat); ``touched``: pages of memory that the
    runner had not touched before; ``seconds``: the block's length.
    """

    seconds: float
    switches: int = 0
    stolen: float = 0.0
    touched: int = 0


def disturbed(noise: Disturbance, *, switches: int = 0, stolen: float = 0.01) -> bool:
    """Whether others disturbed a block: more than ``switches`` switches, more than the share ``stolen`` of its
    time taken away, or more than :data:`FEW_PAGES` of new memory, whose price is the machine's. Decided from these
    counts alone, never from the time measured: that would be dropping outliers."""
    return noise.switches > switches or noise.stolen > stolen * noise.seconds or noise.touched > FEW_PAGES


def undisturbed(rounds: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """The rounds to use of a pair, in order: those in which *no* arm was disturbed (a
    round goes as a whole, so both arms lose the same). Where fewer than half remain all are kept: a pair on a
    busy core is noisy, and the few quiet rounds would be a choice of their own. ``flags`` is true for
    disturbed ones.
    """
    quiet = [item for item, flag in zip(rounds, flags, strict=True) if not flag]
    return quiet if 2 * len(quiet) >= len(rounds) else list(rounds)


def orderless(pairs: Sequence[Sequence[tuple[float, bool]]]) -> list[list[float]]:
    """Each pair's log ratios without the effect of the order, from (log ratio, whether eager ran first).

    Whoever runs second in a round finds the caches full of the other's data, so the ratios come in two humps,
    and a pair's median would lie anywhere between. Both humps are moved to the middle of their medians over
    *all* pairs, since it is the program that makes them, not the process; what a pair is by itself stays. Where
    one order is missing nothing moves.
    """
    humps = [[value for rounds in pairs for value, flag in rounds if flag is side] for side in (False, True)]
    shift = (median(humps[1]) - median(humps[0])) / 2 if all(humps) else 0.0
    return [[value - shift if flag else value + shift for value, flag in rounds] for rounds in pairs]
