"""The probe that finds out how long a call takes before it is measured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_passbench.judge.arms.names import FLOAT64
from pytest_passbench.judge.trial import MAX_PROBES, probe
from pytest_passbench.timing.measurement import Block
from pytest_passbench.timing.rounds import BlockLength, Disturbance


def probed(seconds, waking=0.0, pair=0.024):
    """Return the probe's times and seconds of a block, and its blocks. Each block takes ``waking`` seconds more."""
    blocks = []

    def block(arm, calls):
        blocks.append((arm, calls))
        total = waking + calls * seconds[arm]
        return Block(total, calls, Disturbance(total))

    apart = {"fork": lambda: None, "take_out": lambda _arm: None}
    clock = SimpleNamespace(**apart, block=block, warm=seconds, block_seconds=5e-4)
    bench = SimpleNamespace(layout=SimpleNamespace(slots=64))
    length = BlockLength(clock.block_seconds, pair, bench.layout.slots)
    times = probe(clock, SimpleNamespace(), bench, seconds, length)
    return times, length.seconds, blocks


def test_the_probe_ends_when_blocks_are_long_enough_however_slow_float64_is():
    times, seconds, blocks = probed({"eager": 1e-4, "candidate": 5e-5, FLOAT64: 1e-2})
    assert times == pytest.approx({"eager": 1e-4, "candidate": 5e-5})
    assert seconds == 5e-4
    assert 4e-4 < blocks[-1][1] * 1e-4 < 1e-3
    assert len(blocks) < MAX_PROBES


@pytest.mark.parametrize("waking", [2e-5, 2e-4, 8e-4])
def test_blocks_are_so_long_that_waking_is_a_small_share_of_them(waking):
    times, seconds, blocks = probed({"eager": 6e-5, "candidate": 3e-5}, waking)
    assert seconds <= 4 * 5e-4
    calls = blocks[-1][1]
    assert calls * times["candidate"] == pytest.approx(waking + calls * 3e-5)
    assert waking <= 0.15 * calls * 3e-5 or calls * times["eager"] > 0.7 * 4 * 5e-4
    assert calls * times["eager"] < 1.5 * 4 * 5e-4


def test_blocks_of_short_pairs_are_no_longer_than_leaves_time_for_rounds():
    _times, seconds, _blocks = probed({"eager": 6e-5, "candidate": 3e-5}, 4e-4, pair=0.006)
    assert seconds == pytest.approx(0.006 / 8)
