"""The clock of arms on a CUDA device: the judge's own. A block begins and ends with the device idle."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from pytest_passbench.core.device import is_cuda
from pytest_passbench.judge.arms.cuda import CudaRunner, CudaTemplate, Keeper
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import BlockTime
from pytest_passbench.judge.machine.gpu import throttled
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.timing.measurement import Block

MAX_DEVICE_CALLS = 100  # that are timed by events at once: a device has a queue of limited length


class CudaClock(CpuClock):
    """The clock of blocks on a CUDA device, which is idle at both ends. CUDA events give further evidence."""

    min_warm_blocks = 2
    block_seconds = 3e-3  # a wait for the device and a stop of the process cost some 50 us

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._device: dict[str, list[float]] = {}
        self._throttled = False
        self._pairs = self._slowed = self._turns = 0
        self._keeper = self._started_keeper()

    def _started_keeper(self) -> Keeper | None:
        """Start the keeper of the inputs, and tell the templates. Return None if the device cannot share memory.

        Each runner then copies the inputs by itself, which takes longer.
        """
        arm = self._templates[EAGER].arm
        try:
            with self._bench.deadline.paused():
                keeper = Keeper(arm, self._bench.layout, self._bench.pages.fd)
        except ArmFailure:
            return None
        for template in self._templates.values():
            if isinstance(template, CudaTemplate):
                template.keep_inputs(keeper)
        return keeper

    def _draw(self, calls: int) -> None:
        super()._draw(calls)
        self._turns += 1

    def _run(self, arm: str, calls: int, empty: bool = False) -> BlockTime:
        if self._keeper is None:
            return super()._run(arm, calls, empty)
        self._keeper.turn = self._turns  # the inputs are those of the last draw, for all blocks in here
        try:
            return super()._run(arm, calls, empty)
        finally:
            self._keeper.turn = None

    def close(self) -> None:
        """End the clock. The runners stay, and the keeper's memory stays as long as they have it mapped."""
        super().close()
        if self._keeper is not None:
            self._keeper.close()

    def fresh(self) -> None:
        """Start a pair: the same processes, warmed up. Each is timed by events once. Raises ArmFailed.

        Rounds of a pair that the device is throttled in count as disturbed, as those of a busy core do.
        """
        super().fresh()
        with self.phases("warm-up"):
            for arm in self.arms:
                runner, calls = self._runners[arm], min(self.calls, MAX_DEVICE_CALLS)
                with blaming(arm), self._bench.deadline.paused(arm != CANDIDATE):
                    if isinstance(runner, CudaRunner):
                        self._device.setdefault(arm, []).append(runner.device_seconds(calls) / calls)
            self._throttled = bool(throttled(self._templates[EAGER].arm.settings.device))
        self._pairs += 1
        self._slowed += self._throttled

    def block(self, arm: str, calls: int) -> Block:
        """Run a block of a round and return its time, without the time of an empty block. Raises ArmFailed."""
        duration = super().block(arm, calls)
        return replace(duration, noise=replace(duration.noise, throttled=True)) if self._throttled else duration

    def device_us(self, arm: str) -> float | None:
        """Return the device's own microseconds for a call, as the median over pairs.

        The runner states them, so they are evidence only. Return None if there was no pair.
        """
        seconds = self._device.get(arm)
        return median(seconds) * 1e6 if seconds else None

    def slowed_pairs(self) -> tuple[int, int]:
        """Return the number of pairs in which power or heat slowed the device down, and that of all pairs."""
        return self._slowed, self._pairs

    def fill_rate(self) -> float | None:
        """Return the bytes per second that the device filled its memory with in eager's process."""
        return float(self._runners[EAGER].hello["fill_rate"])


def clock_of(device: str) -> type[CpuClock]:
    """Return the class of the clock for blocks on this device."""
    return CudaClock if is_cuda(device) else CpuClock
