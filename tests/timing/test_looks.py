"""Looks and verdicts, by simulation over pair values: coverage despite repeated looks, errors per true ratio."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_passbench.timing.estimate import Estimate, from_values, two_sided
from pytest_passbench.timing.looks import TO_EAGER, TO_REFERENCE, Looks, Stopping, judge

#: (degrees of freedom, one-sided quantile) -> scipy.stats.t.ppf 1.x
SCIPY = {
    (2, 0.975): 4.302652729749462, (2, 0.9995): 31.599054576445365,
    (3, 0.975): 3.1824463052837078, (4, 0.99): 3.746947387979196,
    (5, 0.975): 2.5705818356363146, (5, 0.995): 4.032142983555228,
    (7, 0.975): 2.364624251592784, (12.5, 0.975): 2.1691859427125406,
    (15, 0.9995): 4.072765195903846, (31, 0.99): 2.452824193402645,
    (100, 0.975): 1.9839715185235518,
}  # fmt: skip


@pytest.mark.parametrize(("df", "p"), SCIPY)
def test_quantiles_agree_with_scipy(df, p):
    expected = SCIPY[df, p]
    assert two_sided(2 * (1 - p), df) == pytest.approx(expected, rel=1e-9)


def sessions(values: np.ndarray, stopping: Stopping) -> list[tuple[Estimate, str, str]]:
    """Return the result of measuring each row of ``values`` (a session's pair values) until the rule stops."""
    results = []
    for row in values:
        for look in stopping.looks.pairs:
            result = from_values(row[:look].tolist(), stopping.looks.nominal)
            decision = stopping.decide(result)
            if decision.stop:
                results.append((result, decision.verdict, decision.reason))
                break
    return results


def simulate(truth: float, sd: float, count: int = 1500, seed: int = 1, **rule: float):
    rng = np.random.default_rng(seed)
    values = math.log(truth) + rng.normal(0, sd, (count, 32))
    return sessions(values, Stopping(**rule))


def coverage(results, truth: float) -> float:
    return float(np.mean([result.low <= truth <= result.high for result, _, _ in results]))


def share(results, verdict: str) -> float:
    return float(np.mean([found == verdict for _, found, _ in results]))


def errors(looks: Looks, short: int, weight: float, count: int = 100_000) -> tuple[float, float]:
    """Return how often any look's interval misses the truth, and how often any one-sided one does. The first
    ``short`` pairs count only ``weight``, and have 1 / ``weight`` times the variance."""
    rng, most = np.random.default_rng(7), max(looks.pairs)
    w = np.where(np.arange(most) < short, weight, 1.0)
    x = rng.standard_normal((count, most)) / np.sqrt(w)
    missed, above = np.zeros(count, bool), np.zeros(count, bool)
    for n in looks.pairs:
        equal = w[:n].sum() ** 2 / (w[:n] ** 2).sum()
        mean = x[:, :n] @ w[:n] / w[:n].sum()
        off = ((x[:, :n] - mean[:, None]) ** 2) @ w[:n] ** 2
        stderr = np.sqrt(off * equal / (equal - 1)) / w[:n].sum()
        missed |= np.abs(mean) > two_sided(looks.nominal, equal - 1) * stderr
        above |= mean > two_sided(looks.equivalence, equal - 1) * stderr
    return float(missed.mean()), float(above.mean())


@pytest.mark.parametrize(
    ("looks", "of_equal_pairs"),
    [(TO_EAGER, (0.0465, 0.0445)), (TO_REFERENCE, (0.047, 0.046))],
    ids=["eager", "reference"],
)
def test_all_looks_together_err_five_percent(looks, of_equal_pairs):
    assert errors(looks, 0, 1.0) == pytest.approx(of_equal_pairs, abs=0.002)
    found = [errors(looks, short, weight) for short in (6, 8, 12, 16) for weight in (0.5, 0.25)]
    assert [max(column) for column in zip(*found, strict=True)] == pytest.approx([0.05, 0.05], abs=0.002)


@pytest.mark.parametrize("truth", [1.0, 1.02, 1.05, 2.0])
@pytest.mark.parametrize("sd", [0.004, 0.012, 0.03])
def test_the_reported_interval_covers_although_we_looked(truth, sd):
    assert coverage(simulate(truth, sd), truth) >= 0.945


TAILS = {
    "student t, 3 degrees": lambda rng, size: 0.008 * rng.standard_t(3, size),
    "one pair in ten ten times as wide": lambda rng, size: (
        rng.normal(0, 0.005, size) + (rng.random(size) < 0.1) * rng.normal(0, 0.05, size)
    ),
    "two kinds of process": lambda rng, size: rng.choice([-0.01, 0.01], size) + rng.normal(0, 0.001, size),
}


@pytest.mark.parametrize("tails", TAILS)
def test_pair_values_that_are_not_normal(tails):
    results = sessions(TAILS[tails](np.random.default_rng(4), (1500, 32)), Stopping())
    assert coverage(results, 1.0) >= 0.945
    assert max(share(results, "SLOWER"), share(results, "FASTER")) <= 0.005


def test_looking_without_paying_would_not_cover():
    """The reason for wider intervals: plain 95 % intervals miss too often if one stops once 1 is outside."""
    rng = np.random.default_rng(3)
    hits = 0
    for row in rng.normal(0, 0.012, (1000, 16)):
        plain = [from_values(row[:look].tolist(), 0.05) for look in (6, 8, 12, 16)]
        hits += all(result.low <= 1 <= result.high for result in plain)
    assert hits / 1000 < 0.91


@pytest.mark.parametrize("sd", [0.004, 0.012, 0.03, 0.06])
def test_equal_programs_are_not_called_slower(sd):
    results = simulate(1.0, sd, 3000)
    assert share(results, "SLOWER") <= 0.005
    assert share(results, "FASTER") <= 0.005


@pytest.mark.parametrize("truth", [1 / 1.05, 1.05, 2.0])
def test_planted_differences_are_found(truth):
    results = simulate(truth, 0.015)
    assert share(results, "FASTER" if truth > 1 else "SLOWER") >= 0.9


@pytest.mark.parametrize("sd", [0.004, 0.012, 0.03])
def test_a_difference_of_one_and_a_half_delta_is_not_called_the_same(sd):
    assert share(simulate(1 / 1.03, sd), "SAME") <= 0.05


@pytest.mark.parametrize("sd", [0.008, 0.012, 0.02])
def test_a_difference_of_delta_is_called_the_same_once_in_twenty_at_most(sd):
    assert 0 < share(simulate(1 / 1.02, sd, 4000), "SAME") <= 0.055


def test_a_coarse_clock_is_not_certain_of_sameness_either():
    agreeing = from_values([0.0] * 6, TO_EAGER.nominal, resolution=0.05)
    assert judge(agreeing, 0.02) == "UNRESOLVED"
    assert judge(from_values([0.0], TO_EAGER.nominal), 0.02) == "UNRESOLVED"


@pytest.mark.parametrize(
    ("truth", "sd", "vague"), [(1.2, 0.04, math.log(1.05)), (2.0, 0.09, 0.13), (1 / 3, 0.14, 0.2)]
)
def test_the_ratio_of_a_clear_case_is_as_precise_as_its_distance_asks_for(truth, sd, vague):
    clear = [result for result, _, reason in simulate(truth, sd, 400) if reason == "clear"]
    assert len(clear) > 300
    assert max(result.half_width for result in clear) < vague


def test_a_clear_case_costs_six_pairs_and_a_noisy_one_stays_open():
    assert all(result.pairs == 6 for result, _, _ in simulate(2.0, 0.005, 200))
    assert all(result.pairs == 6 for result, _, _ in simulate(2.0, 0.03, 200))
    noisy = simulate(1.0, 0.08, 200)
    assert share(noisy, "UNRESOLVED") > 0.95
    assert {reason for _, verdict, reason in noisy if verdict == "UNRESOLVED"} == {"pairs"}


def test_a_clear_verdict_with_a_vague_ratio_is_worth_repeating():
    """A score uses the ratio. 2.1 with an interval from 1.6 to 2.8 is FASTER, but not exact enough for a score."""
    vague = [math.log(2.1) + x for x in (-0.2, 0.2, 0.05, -0.1, 0.15, 0)]
    decision = Stopping(max_pairs=6).decide(from_values(vague, TO_EAGER.nominal))
    assert (decision.stop, decision.verdict, decision.reason) == (True, "FASTER", "pairs")
    assert decision.worth_repeating
    sure = Stopping(max_pairs=6).decide(
        from_values([math.log(2.1) + x / 10 for x in (-0.2, 0.2, 0.1, 0)], TO_EAGER.nominal)
    )
    assert (sure.verdict, sure.reason, sure.worth_repeating) == ("FASTER", "clear", False)


def test_a_ratio_at_delta_is_unresolved_but_not_worth_repeating():
    stopping = Stopping()
    result = from_values([math.log(1.02) + x for x in (-1e-3, 1e-3, 5e-4, -5e-4, 0, 0)], TO_EAGER.nominal)
    decision = stopping.decide(result)
    assert (decision.stop, decision.verdict, decision.reason) == (True, "UNRESOLVED", "narrow")
    assert not decision.worth_repeating


def test_a_machine_whose_pairs_resemble_their_neighbours_widens_the_interval():
    rng = np.random.default_rng(8)
    rule, hits, plain = Stopping(correlation=0.5), 0, 0
    for _ in range(500):
        values = [float(rng.normal(0, 0.01))]
        for _ in range(7):
            values.append(0.5 * values[-1] + math.sqrt(0.75) * float(rng.normal(0, 0.01)))
        pairs = [[v] for v in values]
        hits += abs(rule.look(pairs)[0].log_ratio) <= rule.look(pairs)[0].half_width
        plain += abs(Stopping().look(pairs)[0].log_ratio) <= Stopping().look(pairs)[0].half_width
    assert hits / 500 >= 0.95 > 0.92 > plain / 500


def test_out_of_time_stops_before_the_look_that_would_overrun():
    pairs = [[x] for x in (0.1, -0.1, 0.05, -0.05, 0.02, 0.0)]
    assert not Stopping(seconds=1.0).look(pairs, spent=0.6)[1].stop
    decision = Stopping(seconds=1.0).look(pairs, spent=0.8)[1]
    assert decision.stop
    assert decision.reason == "time"
    assert decision.worth_repeating


def test_one_pair_decides_nothing():
    result, decision = Stopping().look([[0.7, 0.7]])
    assert (result.low, result.high) == (0.0, math.inf)
    assert not decision.stop
    assert decision.verdict == "UNRESOLVED"


def test_a_rule_that_no_look_is_paid_for_is_refused():
    with pytest.raises(ValueError, match="delta"):
        Stopping(delta=0.01)
    with pytest.raises(ValueError, match="max_pairs"):
        Stopping(max_pairs=7)


@pytest.mark.parametrize(
    ("ratio", "half", "verdict"),
    [(1.05, 0.02, "FASTER"), (1 / 1.05, 0.02, "SLOWER"), (1.0, 0.015, "SAME"), (1.0, 0.03, "UNRESOLVED"),
     (1.015, 0.01, "UNRESOLVED"), (1.03, 0.02, "UNRESOLVED")],
)  # fmt: skip
def test_verdicts(ratio, half, verdict):
    swap = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    result, swapped = (Estimate(sign * math.log(ratio), half, half / 3, 5, 6) for sign in (1, -1))
    assert judge(result, 0.02) == verdict
    assert judge(swapped, 0.02) == swap.get(verdict, verdict)
