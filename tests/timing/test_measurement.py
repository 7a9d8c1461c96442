"""Whole sessions on simulated machines: coverage and verdicts with process bias, drift, steps, bursts."""

from __future__ import annotations

import random
from statistics import median

import numpy as np
import pytest

from pytest_passbench.timing.estimate import estimate
from pytest_passbench.timing.looks import Stopping
from pytest_passbench.timing.measurement import measure, measure_pair
from pytest_passbench.timing.rounds import Shape
from support.fake_clock import FakeClock, MachineNoise

CALL = 20e-6
SHAPE = Shape(calls=25, rounds=8, max_rounds=24)

MACHINES = {
    "iid": MachineNoise(bias=0.0),
    "bias": MachineNoise(),
    "drift": MachineNoise(drift=0.2),
    "steps": MachineNoise(step=0.1, step_every=0.02),
    "bursts": MachineNoise(burst=0.5, burst_share=0.1),
    "autocorrelation": MachineNoise(memory=0.9),
    "unequal": MachineNoise(arm_jitter={"candidate": 0.03}),
    "coarse": MachineNoise(step_size=5e-6),
}


def sessions(noise: MachineNoise, truth: float, count: int, seed: int = 0, **rule):
    found = []
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        clock = FakeClock({"eager": CALL, "candidate": CALL / truth}, noise, rng)
        found.append(measure(clock, ("eager", "candidate"), SHAPE, Stopping(**rule), rng)[1]["candidate"])
    return found


@pytest.mark.parametrize(("room", "pairs"), [(0, 2), (2, 2), (3, 3), (8, 8), (9, 8)])
def test_measuring_ends_between_two_looks_if_there_is_no_time_but_not_before_two_pairs(room, pairs):
    rng, asked = random.Random(1), []
    clock = FakeClock({"eager": CALL, "candidate": CALL}, MachineNoise(bias=0.05), rng)

    def more() -> bool:
        asked.append(True)
        return len(asked) <= room

    arms, stopping = ("eager", "candidate"), Stopping(max_pairs=8)
    measured, results = measure(clock, arms, SHAPE, stopping, rng, more=more)
    assert len(measured.pairs) == results["candidate"].estimate.pairs == pairs
    assert results["candidate"].decision.stop
    assert results["candidate"].decision.reason == ("pairs" if pairs == 8 else "time")


@pytest.mark.parametrize(("room", "pairs"), [(2, 2), (3, 3), (4, 4)])
def test_a_measurement_cut_short_has_an_interval_and_a_verdict_from_four_pairs_on(room, pairs):
    rooms = iter([True] * room + [False] * 99)
    clock = FakeClock({"eager": CALL, "candidate": 2 * CALL}, MachineNoise(bias=0.0, jitter=0.0), random.Random(1))
    arms = ("eager", "candidate")
    _, results = measure(clock, arms, SHAPE, Stopping(), clock.rng, more=lambda: next(rooms))
    estimate, decision = results["candidate"].estimate, results["candidate"].decision
    assert (estimate.pairs, decision.stop) == (pairs, True)
    assert estimate.ratio == pytest.approx(0.5, rel=0.01)
    enough = pairs >= 4
    assert decision.verdict == ("SLOWER" if enough else "UNRESOLVED")
    assert (estimate.low > 0.4, estimate.high < 0.6) == (enough, enough)


def coverage(results, truth: float) -> float:
    return float(np.mean([r.estimate.low <= truth <= r.estimate.high for r in results]))


def share(results, verdict: str) -> float:
    return float(np.mean([r.decision.verdict == verdict for r in results]))


@pytest.mark.parametrize(
    "noise", [pytest.param(name, marks=() if name == "iid" else pytest.mark.slow) for name in MACHINES]
)
def test_the_interval_covers_on_every_machine(noise):
    results = {truth: sessions(MACHINES[noise], truth, 400) for truth in (1.0, 1.02, 1.05, 2.0)}
    hits = [coverage(found, truth) for truth, found in results.items()]
    assert np.mean(hits) >= 0.945
    assert min(hits) >= 0.93  # 400 sessions: the standard error of 0.95 is 0.011
    assert max(share(results[1.0], "SLOWER"), share(results[1.0], "FASTER")) <= 0.005
    assert max(share(found, "SLOWER") for found in results.values()) <= 0.005
    assert share(results[1.05], "FASTER") >= 0.9
    assert share(results[2.0], "FASTER") == 1
    assert share(results[1.05], "SAME") == 0


@pytest.mark.slow
def test_equal_programs_with_process_bias():
    results = sessions(MachineNoise(jitter=0.02, bias=0.004), 1.0, 1500, seed=1)
    assert coverage(results, 1.0) >= 0.945
    assert share(results, "SLOWER") <= 0.005
    assert np.quantile([abs(r.estimate.ratio - 1) for r in results], 0.95) < 0.015
    assert share(results, "SAME") > 0.9


def test_pooling_all_rounds_would_not_cover():
    """The reason why the pair is the unit: rounds of one process share its bias."""
    pooled = honest = 0
    for seed in range(300):
        clock = FakeClock({"eager": CALL, "candidate": CALL}, MachineNoise(), random.Random(seed))
        pairs = [
            [r["eager"].per_call / r["candidate"].per_call - 1 for r in rounds]
            for rounds in (measure_pair(clock, ("eager", "candidate"), SHAPE, clock.rng) for _ in range(8))
        ]
        flat = estimate([[d] for rounds in pairs for d in rounds])
        whole = estimate(pairs)
        pooled += flat.low <= 1 <= flat.high
        honest += whole.low <= 1 <= whole.high
    assert pooled / 300 < 0.88
    assert honest / 300 >= 0.92


def test_swapping_the_arms_gives_the_inverse_within_the_intervals():
    for seed in range(40):
        found = []
        for arms in (("a", "b"), ("b", "a")):
            clock = FakeClock({"a": CALL, "b": CALL * 1.07}, MachineNoise(), random.Random(f"{seed} {arms}"))
            found.append(measure(clock, arms, SHAPE, Stopping(), clock.rng)[1][arms[1]].estimate)
        there, back = found
        assert there.low <= 1 / back.low
        assert 1 / back.high <= there.high


def test_several_arms_are_measured_together_until_each_has_its_verdict():
    calls = {"eager": CALL, "candidate": CALL / 2, "inductor": CALL * 1.3}
    clock = FakeClock(calls, MachineNoise(), random.Random(1))
    measured, results = measure(clock, ("eager", "candidate", "inductor"), Shape(25, 6), Stopping(), clock.rng)
    assert results["candidate"].decision.verdict == "FASTER"
    assert results["inductor"].decision.verdict == "SLOWER"
    assert results["candidate"].estimate.ratio == pytest.approx(2, rel=0.02)
    assert measured.per_call("inductor") == pytest.approx(1.3 * CALL, rel=0.02)
    assert clock.forks == len(measured.pairs) == 6
    assert measured.seconds == pytest.approx(clock.now)


@pytest.mark.parametrize(("jitter", "ratio", "wanted"), [(0.01, 1, 8), (0.3, 1, 24), (0.1, 3, 8), (0.1, 1, 24)])
def test_a_pair_goes_on_while_its_value_is_vague(jitter, ratio, wanted):
    clock = FakeClock({"eager": CALL, "candidate": CALL / ratio}, MachineNoise(jitter=jitter), random.Random(5))
    rounds = [len(measure_pair(clock, ("eager", "candidate"), SHAPE, clock.rng)) for _ in range(21)]
    assert set(rounds) <= {8, 16, 24}
    assert median(rounds) == wanted


def test_a_noisy_session_is_measured_on_at_the_last_look():
    noise = MachineNoise(bias=0.022)
    clock = FakeClock({"eager": CALL, "candidate": CALL}, noise, random.Random(4))
    arms = ("eager", "candidate")
    measured, first = measure(clock, arms, SHAPE, Stopping(), clock.rng)
    assert first["candidate"].decision.worth_repeating
    again, second = measure(clock, arms, SHAPE, Stopping(max_pairs=32), clock.rng, earlier=measured)
    assert len(again.pairs) == second["candidate"].estimate.pairs == 32
    assert second["candidate"].estimate.half_width < first["candidate"].estimate.half_width
    repeated = measure(clock, arms, SHAPE, Stopping(max_pairs=32), clock.rng, earlier=again)
    assert repeated[1] == second


def test_the_time_of_one_subgraph_is_kept():
    clock = FakeClock({"eager": CALL, "candidate": CALL}, MachineNoise(bias=0.03), random.Random(4))
    _, results = measure(clock, ("eager", "candidate"), SHAPE, Stopping(seconds=0.06), clock.rng)
    assert results["candidate"].decision.reason == "time"
    assert clock.now <= 0.06


def test_disturbed_rounds_are_kept_on_record_and_out_of_the_estimate():
    noise = MachineNoise(bias=0, jitter=1e-4, burst=5.0, burst_share=0.15)
    clock = FakeClock({"eager": CALL, "candidate": CALL}, noise, random.Random(2))
    measured, results = measure(clock, ("eager", "candidate"), SHAPE, Stopping(), clock.rng)
    assert 0.15 < measured.disturbed_share < 0.45
    assert all((len(rounds) - SHAPE.rounds) % SHAPE.more == 0 for rounds in measured.pairs)
    assert min(map(len, measured.log_ratios("candidate"))) < SHAPE.rounds
    assert results["candidate"].estimate.half_width < 1e-3


def test_a_coarse_clock_is_not_certain():
    clock = FakeClock(
        {"eager": CALL, "candidate": CALL * 1.0003}, MachineNoise(0.0, bias=0.0, step_size=1e-5), random.Random(2)
    )
    _, results = measure(clock, ("eager", "candidate"), SHAPE, Stopping(), clock.rng)
    assert results["candidate"].estimate.half_width == pytest.approx(0.02, rel=0.01)


def test_the_same_seed_gives_the_same_session():
    assert sessions(MachineNoise(), 1.02, 3) == sessions(MachineNoise(), 1.02, 3)
