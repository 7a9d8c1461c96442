"""The clock of arms on a CUDA device: the judge's own. A block begins and ends with the device idle."""

from __future__ import annotations

from statistics import median
from typing import Any

from pytest_passbench.judge.arms.cuda import CudaRunner
from pytest_passbench.judge.arms.runner import BlockTime
from pytest_passbench.judge.measure.cpu_clock import CpuClock


class CudaClock(CpuClock):
    """The clock of blocks on a CUDA device, which is idle at both ends. CUDA events are kept as further evidence."""

    name = "cuda-wall"
    min_warm_blocks = 2

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._device: dict[str, list[float]] = {}

    def _run(self, arm: str, calls: int, empty: bool = False) -> BlockTime:
        taken = super()._run(arm, calls, empty)
        runner = self._runners[arm]
        if isinstance(runner, CudaRunner) and not empty:
            self._device.setdefault(arm, []).append(runner.device_seconds / calls)
        return taken

    def device_us(self, arm: str) -> float | None:
        """Return the microseconds of a call between two events on the runner's stream, as the median over blocks.

        The runner states them, so they are evidence only. Return None if no block was run.
        """
        found = self._device.get(arm)
        return median(found) * 1e6 if found else None
