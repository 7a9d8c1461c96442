"""What a clock is, and a fake one that simulates the machines that real ones run on."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pytest_passbench.timing.rounds import Disturbance


@dataclass(frozen=True)
class Block:
    """One timed block: ``seconds`` for ``calls`` calls, the cost of an empty block already taken off."""

    seconds: float
    calls: int
    noise: Disturbance

    @property
    def per_call(self) -> float:
        """Seconds per call."""
        return self.seconds / self.calls


class Clock(Protocol):
    """A way of timing the arms. Clocks of different ``name`` are never mixed in one ratio.

    A clock holds at most one process per arm. :meth:`fresh` replaces them by new ones, warmed up until
    settled and stopped; that begins a pair. :meth:`block` lets one arm run ``calls`` calls on inputs that
    it has not seen, while every other arm stays stopped, and returns what the *judge's* side of the clock
    saw, less the cost of an empty block. It holds the machine-wide lock of its core or device. A runner
    that fails raises the judge's own error through it; a time is never made up. :meth:`close` ends the
    processes.
    """

    @property
    def name(self) -> str:
        """One of "cpu-wall", "cuda-wall", "cuda-device"."""

    @property
    def resolution(self) -> float:
        """The clock's step in seconds."""

    def fresh(self) -> None:
        """New processes of all arms."""

    def block(self, arm: str, calls: int) -> Block:
        """Time one block of ``calls`` calls of ``arm``."""

    def close(self) -> None:
        """End the processes."""


@dataclass(frozen=True)
class Weather:
    """What disturbs a :class:`FakeClock`. Relative sizes of times, seconds for durations.

    ``jitter``: independent noise of a block; ``arm_jitter``: more of it for some arms (unequal variances);
    ``bias``: standard deviation of a process's own speed; ``drift``: relative slowing per second of the
    machine; ``step``/``step_every``: the machine switches between two speeds that far apart, at exponential
    intervals; ``burst``/``burst_share``: blocks slowed by an exponential amount of mean ``burst``, this
    share of them, seen as context switches; ``memory``: lag-1 correlation of a common noise of size
    ``jitter`` from block to block. ``step_size``: the clock's resolution in seconds.
    """

    jitter: float = 0.01
    arm_jitter: Mapping[str, float] = field(default_factory=dict)
    bias: float = 0.004
    drift: float = 0.0
    step: float = 0.0
    step_every: float = 0.2
    burst: float = 0.0
    burst_share: float = 0.0
    memory: float = 0.0
    step_size: float = 0.0


class FakeClock:
    """A simulated machine (a :class:`Clock`). ``calls``: each arm's true seconds per call."""

    name = "fake"

    def __init__(self, calls: Mapping[str, float], weather: Weather, rng: random.Random) -> None:
        self.calls, self.weather, self.rng = dict(calls), weather, rng
        self.now = 0.0
        self.forks = 0
        self._bias = dict.fromkeys(calls, 0.0)
        self._common = 0.0
        self._slow, self._switch_at = False, 0.0

    @property
    def resolution(self) -> float:
        """The simulated step in seconds."""
        return self.weather.step_size

    def fresh(self) -> None:
        """New processes: each draws a bias of its own."""
        self.forks += 1
        self._bias = {arm: self.rng.gauss(0, self.weather.bias) for arm in self.calls}

    def block(self, arm: str, calls: int) -> Block:
        """One simulated block; the machine's time moves on by its length."""
        burst = self._burst()
        slowing = self._bias[arm] + self._machine() + self._jitter(arm)
        seconds = calls * self.calls[arm] * math.exp(slowing) * (1 + burst)
        self.now += seconds
        if self.weather.step_size:
            ticks = max(1, round(seconds / self.weather.step_size))
            seconds = ticks * self.weather.step_size
        return Block(seconds, calls, Disturbance(seconds, switches=int(burst > 0)))

    def close(self) -> None:
        """Nothing to end."""

    def _jitter(self, arm: str) -> float:
        return self.rng.gauss(0, self.weather.jitter + self.weather.arm_jitter.get(arm, 0.0))

    def _burst(self) -> float:
        if self.weather.burst_share and self.rng.random() < self.weather.burst_share:
            return self.rng.expovariate(1 / self.weather.burst)
        return 0.0

    def _machine(self) -> float:
        """What hits every arm alike at this moment: drift, steps, correlated noise."""
        weather = self.weather
        if weather.step and self.now >= self._switch_at:
            self._slow = not self._slow
            self._switch_at = self.now + self.rng.expovariate(1 / weather.step_every)
        if weather.memory:
            fresh = self.rng.gauss(0, weather.jitter * math.sqrt(1 - weather.memory**2))
            self._common = weather.memory * self._common + fresh
        return weather.drift * self.now + weather.step * self._slow + self._common
