"""Pairs of rounds: the order of the arms, and which arm is which, do not change the result."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.timing.measurement import Arms, Block
from pytest_passbench.timing.rounds import Disturbance, orderless


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=2, max_size=12))
def test_exchanging_the_arms_gives_the_inverse(times):
    block = lambda seconds: Block(seconds, 1, Disturbance(seconds))  # noqa: E731
    order = [("eager", "candidate"), ("candidate", "eager")]
    pair, other = [], []
    for index, (a, b) in enumerate(times):
        taken, exchanged = {"eager": a, "candidate": b}, {"eager": b, "candidate": a}
        pair.append({arm: block(taken[arm]) for arm in order[index % 2]})
        other.append({arm: block(exchanged[arm]) for arm in order[1 - index % 2]})
    one = Arms(("eager", "candidate"), [pair]).log_ratios("candidate")[0]
    two = Arms(("eager", "candidate"), [other]).log_ratios("candidate")[0]
    assert one == pytest.approx([-value for value in two])


def test_running_first_or_second_leaves_no_trace():
    rng = random.Random(1)
    rounds = [(0.08 if i % 2 else -0.08, bool(i % 2)) for i in range(32)]
    pairs = [[(0.05 + order + rng.gauss(0, 0.001), first) for order, first in rounds] for _ in range(6)]
    for rounds in orderless(pairs):
        assert max(rounds) - min(rounds) < 0.02
        assert sum(rounds) / len(rounds) == pytest.approx(0.05, abs=0.002)
    assert orderless([[(0.1, True), (0.2, True)]]) == [[0.1, 0.2]]


def test_the_greatest_ratio_is_that_of_the_fastest_pair():
    def pair(seconds):
        times = {"eager": 1.0, "candidate": seconds}
        orders = [("eager", "candidate"), ("candidate", "eager")] * 4
        return [{arm: Block(0.9 * times[arm], 1, Disturbance(times[arm])) for arm in order} for order in orders]

    measured = Arms(("eager", "candidate"), [pair(0.5), pair(0.1), pair(0.5)])
    assert measured.greatest_whole_ratio("candidate") == pytest.approx(10)
    assert measured.whole_ratio("candidate").ratio < 5
