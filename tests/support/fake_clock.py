"""A clock that simulates a machine, for tests of the statistics: see pytest_passbench.timing.measurement."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_passbench.timing.measurement import Block
from pytest_passbench.timing.rounds import Disturbance


@dataclass(frozen=True)
class MachineNoise:
    """The noise of a :class:`FakeClock`: sizes are relative to times, durations are in seconds.

    ``jitter`` is independent noise of each block, and ``arm_jitter`` adds more of it for some arms (unequal
    variances). ``bias`` is the standard deviation of a process's own speed. ``drift`` is the relative slowing
    of the machine per second. With ``step`` the machine switches between two speeds that far apart, at
    exponential intervals of mean ``step_every``. A share ``burst_share`` of the blocks is slowed by an
    exponential amount of mean ``burst``, and reports a context switch. ``memory`` is the lag-1 correlation,
    from block to block, of a common noise of size ``jitter``. ``step_size`` is the clock's resolution in
    seconds.
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
    """A :class:`pytest_passbench.timing.measurement.Clock` of a simulated machine.

    ``calls`` are each arm's true seconds per call.
    """

    name = "fake"

    def __init__(self, calls: Mapping[str, float], noise: MachineNoise, rng: random.Random) -> None:
        self.calls, self.noise, self.rng = dict(calls), noise, rng
        self.now = 0.0
        self.forks = 0
        self._bias = dict.fromkeys(calls, 0.0)
        self._common = 0.0
        self._slow, self._switch_at = False, 0.0

    @property
    def resolution(self) -> float:
        """The simulated step in seconds."""
        return self.noise.step_size

    def fresh(self) -> None:
        """Begin a pair: every new process draws a bias of its own."""
        self.forks += 1
        self._bias = {arm: self.rng.gauss(0, self.noise.bias) for arm in self.calls}

    def block(self, arm: str, calls: int) -> Block:
        """Return one simulated block, and move the machine's time on by its length."""
        burst = self._burst()
        slowing = self._bias[arm] + self._machine() + self._jitter(arm)
        seconds = calls * self.calls[arm] * math.exp(slowing) * (1 + burst)
        self.now += seconds
        if self.noise.step_size:
            ticks = max(1, round(seconds / self.noise.step_size))
            seconds = ticks * self.noise.step_size
        return Block(seconds, calls, Disturbance(seconds, throttled=burst > 0))

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def _jitter(self, arm: str) -> float:
        return self.rng.gauss(0, self.noise.jitter + self.noise.arm_jitter.get(arm, 0.0))

    def _burst(self) -> float:
        if self.noise.burst_share and self.rng.random() < self.noise.burst_share:
            return self.rng.expovariate(1 / self.noise.burst)
        return 0.0

    def _machine(self) -> float:
        """Return the noise that all arms have in common at this moment: drift, steps, correlated noise."""
        noise = self.noise
        if noise.step and self.now >= self._switch_at:
            self._slow = not self._slow
            self._switch_at = self.now + self.rng.expovariate(1 / noise.step_every)
        if noise.memory:
            fresh = self.rng.gauss(0, noise.jitter * math.sqrt(1 - noise.memory**2))
            self._common = noise.memory * self._common + fresh
        return noise.drift * self.now + noise.step * self._slow + self._common
