"""Laws of the estimate, the rounds, series and floor."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.timing import rounds, series
from pytest_passbench.timing.estimate import (
    estimate,
    from_values,
    log_ratio,
    median_error,
    pair_value,
    weights,
)

LOGS = st.floats(-3, 3, allow_nan=False)
#: Pairs with equal numbers of rounds, so that all count the same.
EQUAL = st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(LOGS, min_size=n, max_size=n), min_size=2, max_size=12))
PAIRS = st.lists(st.lists(LOGS, min_size=1, max_size=9), min_size=2, max_size=12)


def test_the_package_imports_neither_torch_nor_pytest():
    modules = "estimate looks measurement rounds series"
    code = "import sys\n" + "".join(f"import pytest_passbench.timing.{name}\n" for name in modules.split())
    code += "print([m for m in ('torch', 'pytest', 'scipy', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@given(PAIRS)
def test_swapping_the_arms_inverts_the_ratio_and_the_interval_exactly(pairs):
    there = estimate(pairs)
    back = estimate([[-d for d in rounds] for rounds in pairs])
    assert back == replace(there, log_ratio=-there.log_ratio)
    assert back.ratio == pytest.approx(1 / there.ratio, rel=1e-12)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_pairs_and_of_rounds_does_not_matter(pairs, rng):
    shuffled = [rng.sample(rounds, len(rounds)) for rounds in rng.sample(pairs, len(pairs))]
    assert estimate(shuffled) == estimate(pairs)


@given(EQUAL, LOGS)
def test_a_common_factor_moves_the_estimate_and_not_its_width(pairs, shift):
    moved = estimate([[d + shift for d in rounds] for rounds in pairs])
    here = estimate(pairs)
    assert moved.log_ratio == pytest.approx(here.log_ratio + shift, abs=1e-9)
    assert moved.half_width == pytest.approx(here.half_width, abs=1e-6)


def test_the_textbook_interval():
    values = [0.01, 0.03, 0.02, 0.00, 0.02, 0.01]
    result = estimate([[v] for v in values])
    sd = np.std(values, ddof=1)
    assert result.log_ratio == pytest.approx(np.mean(values))
    assert result.half_width == pytest.approx(2.5705818356363146 * sd / math.sqrt(6))
    assert result.low < result.ratio < result.high
    assert (result.pairs, result.df) == (6, 5)


def test_a_burst_inside_a_pair_moves_nothing_and_a_bad_pair_is_not_dropped():
    calm = [[0.01] * 5] * 6
    burst = [[0.01] * 4 + [-2.0]] * 6
    assert estimate(burst).log_ratio == estimate(calm).log_ratio
    bad = [*calm[:5], [-2.0] * 5]
    assert estimate(bad).half_width > 0.5
    assert estimate(bad).log_ratio == pytest.approx((5 * 0.01 - 2) / 6)


def test_pairs_that_were_cut_short_count_for_less_where_that_made_them_vague():
    rng = np.random.default_rng(8)
    noisy = [list(rng.normal(0, 0.3, count)) for count in [50] * 6 + [200] * 6]
    assert weights(noisy) == pytest.approx([0.25] * 6 + [1.0] * 6)
    assert weights([list(rng.normal(0, 0.01, count)) for count in [50] * 6 + [200] * 6]) == [1.0] * 12
    assert weights([[0.1]] * 3) == [1.0] * 3
    assert min(weights([list(rng.normal(0, 0.3, count)) for count in [10] * 3 + [400] * 3])) == 0.25
    values = [pair_value(rounds) for rounds in noisy]
    assert estimate(noisy).log_ratio == pytest.approx(np.average(values, weights=weights(noisy)))
    assert estimate(noisy).df == pytest.approx(7.5**2 / 6.375 - 1)  # (sum w)^2 / sum w^2
    assert estimate(noisy).half_width < from_values(values).half_width


def test_few_pairs_and_no_spread():
    assert estimate([[0.5]]).half_width == math.inf
    assert (estimate([[0.5]]).low, estimate([[0.5]]).high) == (0.0, math.inf)
    equal = estimate([[0.5], [0.5], [0.5]])
    assert (equal.low, equal.high) == (equal.ratio, equal.ratio)
    assert estimate([[0.5], [0.5], [0.5]], resolution=0.01).half_width == 0.01


@pytest.mark.parametrize("pairs", [[], [[]], [[0.1], []], [[math.nan]], [[math.inf], [0.0]]])
def test_what_is_not_a_measurement_is_refused(pairs):
    with pytest.raises(ValueError):
        estimate(pairs)


@pytest.mark.parametrize("times", [(0, 1), (1, 0), (-1, 1), (math.nan, 1), (1, math.inf)])
def test_times_that_are_none_have_no_ratio(times):
    with pytest.raises(ValueError):
        log_ratio(*times)


def test_effective_pairs_widen_the_interval():
    values = [0.01, 0.03, 0.02, 0.00, 0.02, 0.01]
    assert from_values(values, effective=3).half_width > 2 * from_values(values).half_width
    assert from_values(values, effective=60) == from_values(values)


@given(st.lists(LOGS, min_size=1, max_size=20))
def test_a_pair_is_its_median(values):
    assert pair_value(values) == median(values)


@pytest.mark.parametrize("arms", ["ab", "abc"])
def test_orders_are_balanced(arms):
    made = rounds.orders(arms, 24, random.Random(1))
    counts = Counter(made)
    assert len(counts) == math.factorial(len(arms))
    assert set(counts.values()) == {24 // len(counts)}
    assert all(made[i] == made[i + 1][::-1] for i in range(0, 24, 2))


def test_orders_are_random_but_repeatable():
    made = [tuple(rounds.orders("ab", 8, random.Random(seed))) for seed in range(40)]
    assert len(set(made)) > 10
    assert made[3] == tuple(rounds.orders("ab", 8, random.Random(3)))
    with pytest.raises(ValueError, match="even"):
        rounds.orders("ab", 7, random.Random(1))


@given(st.floats(1e-7, 1.0), st.integers(1, 4096))
def test_blocks_have_the_length_asked_where_that_is_possible(call, max_calls):
    calls = rounds.calls_per_block(call, 0.5e-3, max_calls)
    assert 1 <= calls <= max_calls
    if 1 < calls < max_calls:
        assert abs(calls * call - 0.5e-3) <= call / 2 + 1e-12


def test_shapes_of_short_and_long_calls():
    assert rounds.shape(5e-6) == rounds.Shape(calls=100, rounds=16, max_rounds=128)
    assert rounds.shape(50e-3) == rounds.Shape(calls=1, rounds=4, max_rounds=1)
    assert rounds.shape(1e-3) == rounds.Shape(calls=1, rounds=8, max_rounds=64)
    assert rounds.shape(1e-3, pair=0.008) == rounds.Shape(calls=1, rounds=4, max_rounds=4)
    assert rounds.calls_per_block(0.0, max_calls=7) == 7


@pytest.mark.parametrize(("count", "most"), [(2, 1.5), (4, 1.5), (9, 1.25), (32, 1.15), (96, 1.15)])
def test_the_error_of_a_median_is_what_medians_scatter_by(count, most):
    rng = np.random.default_rng(count)
    samples = rng.normal(0, 0.1, (4000, count))
    found = np.mean([median_error(list(row)) ** 2 for row in samples]) ** 0.5
    assert 0.95 <= found / np.median(samples, axis=1).std() <= most
    assert median_error([0.1]) == math.inf


def test_disturbed_rounds_are_left_out_as_a_whole_unless_most_are():
    noise = rounds.Disturbance
    assert not rounds.disturbed(noise(1e-3))
    assert rounds.disturbed(noise(1e-3, throttled=True))
    assert rounds.disturbed(noise(1e-3, stolen=1e-4))
    assert rounds.disturbed(noise(1e-3, touched=512))
    assert not rounds.disturbed(noise(1e-3, touched=rounds.MAX_NEW_PAGES))
    assert rounds.undisturbed("abcd", [False, True, False, False]) == list("acd")
    assert rounds.undisturbed("abcd", [True, True, False, True]) == list("abcd")


def autoregressive(count: int, r: float, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    x = [float(rng.normal())]
    for _ in range(count - 1):
        x.append(r * x[-1] + math.sqrt(1 - r * r) * float(rng.normal()))
    return x


def test_autocorrelation_is_found_and_seldom_imagined():
    alarms = sum(series.correlated(autoregressive(16, 0.0, seed)) for seed in range(400))
    assert alarms / 400 < 0.03
    found = sum(series.correlated(autoregressive(64, 0.6, seed)) for seed in range(100))
    assert found / 100 > 0.95
    assert series.lag1(autoregressive(5000, 0.6, 1)) == pytest.approx(0.6, abs=0.05)
    assert series.effective_size(autoregressive(5000, 0.6, 1)) == pytest.approx(1250, rel=0.15)


def test_autocorrelation_of_a_run_is_found_where_no_subgraph_shows_it():
    def run(r: float) -> list[list[float]]:
        return [autoregressive(6, r, seed) for seed in range(300)]

    assert series.pooled_lag1(run(0.0)) == 0.0
    assert 0.3 <= series.pooled_lag1(run(0.5)) <= 0.5
    assert series.pooled_lag1([]) == series.pooled_lag1([[1.0]]) == 0.0
    assert series.pooled_lag1([[0.0] * 6] * 9) == 0.0
    assert series.pooled_lag1([[0.02] * 6] * 9) == 1.0


@pytest.mark.parametrize(("count", "most"), [(4, 0.0), (6, 0.0), (8, 0.05), (16, 0.05), (64, 0.05)])
def test_sessions_of_unequal_noise_seldom_seem_correlated_and_never_much(count, most):
    scales = np.random.default_rng(count).lognormal(0, 1, (400, count))
    seeds = np.arange(scales.size).reshape(scales.shape)
    bounds = [
        series.pooled_lag1(
            [[float(scale) * x for x in autoregressive(6, 0.0, int(seed))] for scale, seed in zip(*row, strict=True)]
        )
        for row in zip(scales, seeds, strict=True)
    ]
    assert np.mean([bound > 0 for bound in bounds]) <= most
    assert np.quantile(bounds, 0.99) <= 0.3


@given(st.integers(2, 99), st.floats(-1, 1))
def test_correlated_values_are_worth_no_more_than_they_are(count, r):
    assert 2 <= series.independent(count, r) <= count


def test_autocorrelation_of_next_to_nothing():
    assert series.lag1([]) == series.lag1([1.0, 2.0]) == series.lag1([3.0] * 9) == 0.0
    assert series.effective_size([1.0, -1.0] * 8) == 16
    assert series.effective_size([0.0] * 30 + [1.0] * 30) >= 2


def test_the_floor_holds_ninety_five_percent_of_the_sessions():
    rng = np.random.default_rng(5)
    hits = [abs(rng.normal(0, 0.006)) <= math.log1p(series.aa_floor(list(rng.normal(0, 0.006, 12))).width)
            for _ in range(2000)]  # fmt: skip
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)
    with pytest.raises(ValueError):
        series.aa_floor([])


@pytest.mark.parametrize("shared", [0.0, 0.01])
def test_what_the_sessions_errors_explain_is_no_floor_head_to_head(shared):
    """What is left covers 95 % of what the sessions share. If they share nothing, it is little."""
    rng, error, count = np.random.default_rng(7), 0.006, 48
    scatter = np.hypot(shared, error)
    found = [series.unexplained(list(rng.normal(0, scatter, count)), [error] * count) for _ in range(400)]
    if shared:
        assert np.mean([abs(rng.normal(0, shared)) <= math.log1p(width) for width in found]) > 0.93
    else:
        assert np.mean([width < 0.01 for width in found]) > 0.95
    assert series.unexplained([], []) == series.unexplained([0.1], [math.inf]) == 0.0
