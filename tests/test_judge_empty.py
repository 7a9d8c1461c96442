"""What an empty block takes off: the least that eager's own runners have shown, whatever else goes on."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.arms.runner import BlockTime
from pytest_passbench.judge.measure import cpu_clock
from pytest_passbench.judge.stopwatch import Stopwatch

FULL = {"eager": 500e-6, "candidate": 250e-6}


class Runner:
    """A runner whose blocks take as long as it is told."""

    def __init__(self, full: float, empties: list[float]) -> None:
        self._full, self._empties = full, empties
        self.watch = SimpleNamespace(find_threads=lambda: None, waited=lambda: 0.0)

    def block(self, _calls: int, empty: bool, _depth: int) -> BlockTime:
        return BlockTime(self._empties.pop(0) if empty else self._full, 0.0, 0)

    def close(self, _core: int | None = None) -> None:
        pass


def measured(monkeypatch: pytest.MonkeyPatch, empties: dict[str, list[float]], pairs: int = 3) -> dict[str, float]:
    """Seconds per call of each arm in the last pair; ``empties`` are what its runners' empty blocks take."""
    left = {arm: list(values) for arm, values in empties.items()}
    forked = lambda *_arguments: {arm: Runner(FULL[arm], left[arm]) for arm in FULL}  # noqa: E731
    quiet = SimpleNamespace(begin=lambda: None, end=lambda: None)
    monkeypatch.setattr(cpu_clock, "fork_all", forked)
    monkeypatch.setattr(cpu_clock, "Preference", lambda: quiet)
    bench: Any = SimpleNamespace(
        pages=None,
        inputs=SimpleNamespace(draw=lambda calls: [[]] * calls, write=lambda batch, pages: None),
        cores=SimpleNamespace(forking=[0], arms={0}),
        awake=SimpleNamespace(off=contextlib.nullcontext),
        secret=Secret(b"seed"),
        phases=Stopwatch({}),
    )
    templates: Any = {arm: SimpleNamespace(rehearses=False, resting=[]) for arm in FULL}
    program: Any = None
    clock = cpu_clock.CpuClock(templates, program, bench, lambda *_round: None)
    with contextlib.closing(clock):
        clock.calls = 10
        for _ in range(pairs):
            clock.fresh()
        return {arm: clock.block(arm, 10).per_call for arm in FULL}


LEAST = 60e-6


@pytest.mark.parametrize(
    "eagers",
    [
        [LEAST] * 6,
        [200e-6, 95e-6, LEAST, 180e-6, 90e-6, 61e-6],
        [240e-6, 240e-6, 240e-6, LEAST, 240e-6, 240e-6],
    ],
)
@pytest.mark.parametrize("candidates", [[1e-6] * 9, [240e-6] * 9])
def test_the_least_of_eagers_empty_blocks_is_taken_off(monkeypatch, eagers, candidates):
    found = measured(monkeypatch, {"eager": [*eagers, *[400e-6] * 3], "candidate": candidates})
    for arm, seconds in found.items():
        assert seconds * 10 == pytest.approx(FULL[arm] - LEAST)


def test_at_least_half_of_a_block_stays(monkeypatch):
    found = measured(monkeypatch, {"eager": [200e-6] * 6, "candidate": [200e-6] * 6})
    assert found["eager"] * 10 == pytest.approx(300e-6)
    assert found["candidate"] * 10 == pytest.approx(125e-6)
