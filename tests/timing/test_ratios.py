"""Three arms in the same rounds: the ratio of two of them, which decides how long to measure."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np

from pytest_passbench.timing.looks import TO_REFERENCE, Stopping
from pytest_passbench.timing.measurement import measure
from pytest_passbench.timing.rounds import Shape
from support.fake_clock import FakeClock, MachineNoise

CALL = 20e-6
ARMS, RATIOS = ("eager", "candidate", "reference"), {"against": ("reference", "candidate")}
FIRST, AGAIN = Shape(25, 8, 24), Shape(25, 8, 64, 0.01)
NOISE = MachineNoise(jitter=0.015, bias=0.006)


def session(extra: float, seed: object, noise: MachineNoise = NOISE, slow_build: float = 0.0):
    """Measure a candidate with extra work against the reference as a judge does: six pairs, and more with programs
    built anew if the verdict is open or is a difference. The first program is slower by ``slow_build``.
    """
    rng = random.Random(f"{seed}")
    first, anew = (
        FakeClock({"eager": 2 * CALL, "candidate": (1 + extra + slow) * CALL, "reference": CALL}, noise, rng)
        for slow in (slow_build, 0.0)
    )
    measured, results = measure(first, ARMS, FIRST, Stopping(looks=TO_REFERENCE, max_pairs=6), rng, ratios=RATIOS)
    decision = results["against"].decision
    if decision.worth_repeating or decision.verdict in ("FASTER", "SLOWER"):
        more = Stopping(looks=TO_REFERENCE, max_pairs=48)
        measured, results = measure(anew, ARMS, AGAIN, more, rng, earlier=measured, ratios=RATIOS)
    return measured, results


def test_two_copies_are_the_same_and_three_per_cent_are_found():
    found = {extra: [session(extra, seed)[1]["against"] for seed in range(60)] for extra in (0.0, 0.03)}
    verdicts = {extra: Counter(result.decision.verdict for result in results) for extra, results in found.items()}
    assert verdicts[0.0]["SLOWER"] + verdicts[0.0]["FASTER"] == 0
    assert verdicts[0.0]["SAME"] >= 57
    assert verdicts[0.03]["SLOWER"] >= 48
    for extra, results in found.items():
        truth = 1 / (1 + extra)
        assert np.mean([one.estimate.low <= truth <= one.estimate.high for one in results]) >= 0.93


def test_a_program_that_is_slow_for_where_it_lies_in_memory_is_no_slower_candidate():
    found = [session(0.0, seed, slow_build=0.06)[1]["against"].decision.verdict for seed in range(60)]
    assert found.count("SLOWER") <= 4  # by one measurement alone it would be in nearly all
    assert found.count("SAME") >= 50


def test_the_ratio_is_narrower_than_the_quotient_of_two_runs_where_the_machine_drifts():
    drifting = MachineNoise(jitter=0.01, bias=0.004, step=0.1, step_every=0.02)
    shares = []
    for seed in range(20):
        one, other = (session(0.0, f"{seed} {run}", drifting)[1] for run in (1, 2))
        apart = math.hypot(one["candidate"].estimate.half_width, other["reference"].estimate.half_width)
        shares.append(one["against"].estimate.half_width / apart)
    assert np.median(shares) < 0.85


def test_the_ratio_alone_decides_when_to_stop():
    rng = random.Random(1)
    noisy = MachineNoise(jitter=0.001, bias=0.0, arm_jitter={"eager": 0.3})
    clock = FakeClock({"eager": CALL, "candidate": CALL, "reference": CALL}, noisy, rng)
    measured, results = measure(clock, ARMS, FIRST, Stopping(max_pairs=16), rng, ratios=RATIOS)
    assert results["against"].decision.verdict == "SAME"
    assert len(measured.pairs) == 6
    assert not results["candidate"].decision.stop
    clock = FakeClock({"eager": CALL, "candidate": CALL, "reference": CALL}, noisy, rng)
    without, _ = measure(clock, ARMS, FIRST, Stopping(max_pairs=16), rng)
    assert len(without.pairs) > 6


def test_exchanging_the_two_changes_the_sign_and_nothing_else():
    measured, results = session(0.05, 3)
    measured.ratios = {**RATIOS, "exchanged": ("candidate", "reference")}
    pairs = measured.log_ratios("exchanged")
    assert pairs == [[-value for value in rounds] for rounds in measured.log_ratios("against")]
    assert Stopping(max_pairs=32).look(pairs)[0].log_ratio == -results["against"].estimate.log_ratio
