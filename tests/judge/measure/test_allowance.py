"""How a budget is shared among the subgraphs of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_passbench.judge.measure.allowance import DEFAULT, MIN_PAIR_SECONDS, QUICK, Budget
from pytest_passbench.timing.rounds import MAX_PAIR_SECONDS, PAIR_SECONDS


def test_a_budget_is_shared_among_those_left():
    now = SimpleNamespace(time=0.0)
    budget = Budget(20.0, 10, clock=lambda: now.time)
    budget.begin(10)
    assert budget.allowance(2).pair == MAX_PAIR_SECONDS  # two seconds for each are enough for the longest pairs
    now.time = 19.0
    for _ in range(5):
        budget.done({"blocks": 0.2, "build": 0.1, "fork": 3.5}, pairs=6, arms=2)
    tight = budget.allowance(2)
    assert tight.pair == MIN_PAIR_SECONDS
    assert tight.seconds < 0.2
    assert not budget.spare(1.0)
    now.time = 100.0
    assert budget.allowance(2).seconds == 0.0  # after the budget's end: the least that gives an interval
    assert Budget(None).allowance(2) == DEFAULT
    assert Budget(None).spare(1e9)


def test_a_baseline_that_compiled_for_long_takes_nothing_from_those_measured_without():
    budget = Budget(20.0, 10, clock=lambda: 0.0)
    budget.begin(10, 10)
    budget.done({"build": 9.0, "fork": 0.3}, pairs=6, arms=3)
    assert budget.allowance(3).seconds == 0.0
    budget.done({"build": 0.1, "fork": 0.3}, pairs=6, arms=2)
    assert budget.allowance(2).seconds > 0.0


def test_a_later_run_has_its_own_time_and_knows_what_a_pair_costs():
    now = SimpleNamespace(time=0.0)
    budget = Budget(20.0, 10, clock=lambda: now.time)
    budget.begin(10)
    now.time = 19.0
    budget.done({"fork": 6.0}, pairs=6, arms=2)
    later = budget.renewed(QUICK)
    later.begin(10)
    assert later.allowance(2).pair == MIN_PAIR_SECONDS  # two seconds each, and a pair costs one
    assert Budget(None).renewed(QUICK).allowance(2) == QUICK
    assert (QUICK.pair < DEFAULT.pair, QUICK.pairs) == (True, DEFAULT.pairs)


def test_a_short_budget_takes_rounds_not_pairs():
    budget = Budget(1.8, 10, clock=lambda: 0.0)
    budget.begin(10)
    budget.done({"fork": 0.06}, pairs=6, arms=2)  # a pair costs 0.01 s
    allowed = budget.allowance(2)
    assert MIN_PAIR_SECONDS < allowed.pair < PAIR_SECONDS
    assert 6 * (0.01 + allowed.pair) == pytest.approx(0.7 * 1.8 / 9)  # nine subgraphs are left
