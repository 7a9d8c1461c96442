"""The clock of the CPU: what an empty block takes off, and which rounds are verified."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.arms.runner import BlockTime
from pytest_passbench.judge.bench import Deadline, Stopwatch
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.measure import cpu_clock

FULL = {"eager": 500e-6, "candidate": 250e-6}
LEAST = 60e-6  # seconds of an empty block that nothing disturbed


class Runner:
    """A runner whose blocks take the seconds that the test gives."""

    def __init__(self, full: float, empties: list[float]) -> None:
        self._full, self._empties = full, empties
        self.watch = SimpleNamespace(find_threads=lambda: None, waited=lambda: 0.0)

    def block(self, _calls: int, empty: bool, _depth: int) -> BlockTime:
        return BlockTime(self._empties.pop(0) if empty else self._full, 0.0, 0)

    def close(self, _core: int | None = None) -> None:
        pass


@contextlib.contextmanager
def fake_clock(monkeypatch: pytest.MonkeyPatch, empties: dict[str, list[float]], verify: Any) -> Iterator[Any]:
    """Give a clock of runners whose blocks take :data:`FULL`, and whose empty blocks take what ``empties`` has."""
    left = {arm: list(values) for arm, values in empties.items()}
    forked = lambda *_arguments: {arm: Runner(FULL[arm], left[arm]) for arm in FULL}  # noqa: E731
    quiet = SimpleNamespace(begin=lambda: None, end=lambda: None)
    monkeypatch.setattr(cpu_clock, "fork_all", forked)
    monkeypatch.setattr(cpu_clock, "Preference", lambda: quiet)
    bench: Any = SimpleNamespace(
        pages=None,
        inputs=SimpleNamespace(draw=lambda calls: Batch(1, calls), write=lambda batch, pages: None),
        cores=SimpleNamespace(forking=[0], arms={0}),
        awake=SimpleNamespace(off=contextlib.nullcontext),
        secret=Secret(b"seed"),
        phases=Stopwatch({}),
        deadline=Deadline(60.0),
    )
    template = SimpleNamespace(rehearses=False, resting=[], native=lambda _program: False)
    templates: Any = dict.fromkeys(FULL, template)
    program: Any = None
    clock = cpu_clock.CpuClock(templates, program, bench, verify)
    with contextlib.closing(clock):
        clock.calls = 10
        yield clock


def measured(monkeypatch: pytest.MonkeyPatch, empties: dict[str, list[float]], pairs: int = 3) -> dict[str, float]:
    """Return the seconds per call of each arm in the last pair."""
    with fake_clock(monkeypatch, empties, lambda *_round: None) as clock:
        for _ in range(pairs):
            clock.fresh()
        return {arm: clock.block(arm, 10).per_call for arm in FULL}


def test_rounds_are_verified_when_both_arms_have_run_and_counted_anew_in_each_pair(monkeypatch):
    seen = []
    verify = lambda runners, batch, calls, before: seen.append((calls, before))  # noqa: E731
    with fake_clock(monkeypatch, {arm: [LEAST] * 6 for arm in FULL}, verify) as clock:
        for rounds in (3, 2):
            clock.fresh()
            for _ in range(rounds):
                clock.block("eager", 10)
                told = len(seen)
                clock.block("candidate", 10)
                assert len(seen) == told + 1
    assert seen == [(10, 0), (10, 1), (10, 2), (10, 0), (10, 1)]


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


@pytest.mark.parametrize(("empty", "eager"), [(200e-6, 300e-6), (1.0, 250e-6)], ids=["of one arm", "of both"])
def test_at_least_half_of_a_block_stays(monkeypatch, empty, eager):
    """A disturbed empty block may seem longer than any full one. That must not make all arms equal."""
    found = measured(monkeypatch, {"eager": [empty] * 7, "candidate": [empty] * 7})
    assert found["eager"] * 10 == pytest.approx(eager)
    assert found["candidate"] * 10 == pytest.approx(125e-6)
