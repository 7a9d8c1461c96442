"""How long a call takes, found out before it is measured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_passbench.judge.arms.names import FLOAT64
from pytest_passbench.judge.trial import MAX_PROBES, probe
from pytest_passbench.timing.measurement import Block
from pytest_passbench.timing.rounds import Disturbance


def test_the_probe_ends_when_blocks_are_long_enough_however_slow_float64_is():
    seconds, blocks = {"eager": 1e-4, "candidate": 5e-5, FLOAT64: 1e-2}, []

    def block(arm, calls):
        blocks.append((arm, calls))
        return Block(calls * seconds[arm], calls, Disturbance(calls * seconds[arm]))

    apart = {"fork": lambda: None, "take_out": lambda _arm: None}
    clock = SimpleNamespace(**apart, block=block, warm=seconds, block_seconds=5e-4)
    bench = SimpleNamespace(layout=SimpleNamespace(slots=64))
    times = probe(clock, SimpleNamespace(), bench, seconds)
    assert times == pytest.approx({"eager": 1e-4, "candidate": 5e-5})
    assert blocks[-1][1] * seconds["eager"] == pytest.approx(5e-4)
    assert len(blocks) < MAX_PROBES
