"""Laws of the mean and the quotient of ratios with intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.record import Speed
from pytest_passbench.score.interval import Interval, combined, quotient
from pytest_passbench.timing.estimate import from_values
from support.made_records import speed_of


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.001, 0.5)), min_size=1, max_size=10))
def test_combined_intervals_contain_their_mean_and_are_no_wider_than_the_widest(pairs):
    found = combined([speed_of(ratio, width) for ratio, width in pairs])
    mean = math.exp(sum(math.log(ratio) for ratio, _ in pairs) / len(pairs))
    assert found.ratio == pytest.approx(mean)
    assert found.low <= found.ratio <= found.high
    assert math.log(found.high / found.low) <= 2 * math.log1p(max(width for _, width in pairs)) + 1e-9


def test_one_interval_is_its_own_combination():
    found = combined([speed_of(1.5, 0.1)])
    assert (found.low, found.high) == pytest.approx((1.5 / 1.1, 1.5 * 1.1))


def test_what_the_machine_adds_to_all_does_not_average_out():
    many = [speed_of(1.0, 0.01)] * 100
    assert combined(many, offset=0.02).high > 1.02
    assert combined([]) is None


def test_an_unresolved_interval_stays_infinitely_wide():
    found = combined([Speed(1.0, 0.0, math.inf, "UNRESOLVED", 1.0, 1.0), speed_of(1.0)])
    assert (found.low, found.high) == (0.0, math.inf)


def test_the_interval_of_a_mean_covers():
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(500):
        truths = rng.normal(0, 0.3, 20)
        parts = [from_values(list(t + rng.normal(0, 0.002 * (1 + i), 6))) for i, t in enumerate(truths)]
        whole = combined([Interval(part.ratio, part.low, part.high) for part in parts])
        hits += whole.low <= math.exp(truths.mean()) <= whole.high
    assert hits / 500 >= 0.95


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.001, 0.5))
def test_a_quotient_and_its_inverse_have_inverse_intervals(now, then, width):
    there, back = quotient(speed_of(now, width), speed_of(then)), quotient(speed_of(then), speed_of(now, width))
    assert there.ratio == pytest.approx(now / then)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))
    assert there.high / there.ratio >= 1 + max(width, 0.01) - 1e-9
