"""The probe before a measurement: it finds out how long a call of each arm takes, and verifies some calls."""

from __future__ import annotations

import math
from collections.abc import Collection

from pytest_passbench.judge.arms.names import FLOAT64
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.judge.verify.late import LateReference
from pytest_passbench.timing.rounds import calls_per_block

MAX_PROBES = 20
LONG_CALL_SECONDS, VERY_LONG_CALL_SECONDS = 4e-3, 40e-3  # cold caches change such calls little
REFERENCES = 1  # probes that are compared with float64. Of later calls, chance decides
PROBE_SHARE = 0.25  # of later probes that are verified
SETTLED = 0.9  # of the time seen before. A slower probe shows that calls no longer get faster
MIN_BLOCK_SHARE = 0.7  # of the length of a measured block, for the last probe


def probe(clock: CpuClock, checker: Checker, bench: Bench, programs: Collection[str]) -> dict[str, float]:
    """Return the seconds per call of every arm, from blocks that look like any other. Some calls are verified.

    ``programs`` are the arms, and eager in float64 if it has been built. The checker takes over its runner.
    A single call after a stop has cold caches, and may take several times as long as one in a row. So blocks grow
    until they are about as long as the measured ones. Raises ArmFailed.
    """
    clock.calls = bench.layout.slots
    clock.fork()
    calls, arms = 1, [arm for arm in programs if arm != FLOAT64]
    times, exact = dict.fromkeys(arms, math.inf), 0.0
    for number in range(MAX_PROBES):
        before = max(times.values())
        if number == REFERENCES:
            runner = clock.take_out(FLOAT64)
            if runner is not None:
                checker.use_later(LateReference(runner, bench, exact + checker.reference_seconds))
            checker.share = PROBE_SHARE
        for arm in arms:
            times[arm] = min(times[arm], clock.block(arm, calls).per_call)
        if number < REFERENCES and FLOAT64 in programs:
            exact = clock.block(FLOAT64, calls).seconds
        slowest = max(times.values())
        warm = all(clock.warm[arm] for arm in arms)
        if number and slowest > (LONG_CALL_SECONDS if warm else VERY_LONG_CALL_SECONDS):
            break
        if slowest > SETTLED * before:  # repetition does not make it faster
            if calls * slowest > MIN_BLOCK_SHARE * clock.block_seconds or calls == bench.layout.slots:
                if warm:
                    break
                continue
            block_calls = calls_per_block(slowest, clock.block_seconds, bench.layout.slots)
            calls, times = max(block_calls, min(3 * calls, bench.layout.slots)), dict.fromkeys(arms, math.inf)
    return times
