"""The judge's handles where arms run on a CUDA device: one process per arm and subgraph builds and runs.

The judge itself opens no device: its clock is its own, around a block that begins and ends with the device idle.
"""

from __future__ import annotations

import math
import struct

from pytest_passbench.judge.arms import replies
from pytest_passbench.judge.arms.runner import BlockTime, Runner
from pytest_passbench.judge.arms.template import Effects, Fork, Template
from pytest_passbench.protocol import FLAG_COLLECT, FLAG_PREPARE, Layout

_DOUBLE = struct.Struct("<d")


class CudaTemplate(Template):
    """Turns into the runner when first asked for one, and is that runner for the rest of the subgraph."""

    runner: CudaRunner | None = None
    rehearses = False
    _may_have_threads = True  # the driver's

    def start_fork(
        self, program: Effects, calls: int, place: int, _rehearse: bool = False, audit: bool = False
    ) -> Fork:
        """The runner. The first time decides how many calls a block may have."""
        if self.runner is not None:
            return _Known(self, self.runner)
        return _Turning(self, super().start_fork(program, calls, place, audit=audit))

    @property
    def resting(self) -> list[int]:
        """The zygote alone: the template is what is measured."""
        return [self.arm.zygote]

    def forked(self) -> None:
        """Nothing to hear: nothing was forked."""

    def runner_signal(self) -> int:
        """The signal that ended it, or 0."""
        signals = [number for _pid, number in self.arm.reap() if number]
        return signals[-1] if signals else 0

    def leave(self) -> None:
        """Hang up; the process ends by itself."""
        self._end_runner()
        super().leave()

    def close(self) -> None:
        """End it."""
        self._end_runner()
        super().close()

    def _end_runner(self) -> None:
        if self.runner is not None:
            self.runner.end()
            self.runner = None


class _Turning(Fork):
    """A template that is turning into a runner."""

    def __init__(self, template: CudaTemplate, fork: Fork) -> None:
        super().__init__(template, fork.channel)
        self._cuda = template

    def wait(self, core: frozenset[int]) -> Runner:
        with self._cuda.forking(self.channel):
            self._cuda.runner = CudaRunner(self._cuda, self.channel, core)
        return self._cuda.runner


class _Known(Fork):
    """A runner that is there already."""

    def __init__(self, template: Template, runner: CudaRunner) -> None:
        super().__init__(template, runner._channel)
        self._runner = runner

    def begin(self) -> None:
        """Nothing: no order was sent."""

    def wait(self, _core: frozenset[int]) -> Runner:
        return self._runner


class CudaRunner(Runner):
    """A runner whose inputs and outputs lie on the device. ``device_seconds``: of the last block, by its own word."""

    device_seconds = 0.0
    hello_form = replies.CUDA_RUNNER

    def _expected(self) -> bool:
        return self.pid == self.template.pid

    def block(self, calls: int, empty: bool = False, depth: int = 0) -> BlockTime:
        """Have the inputs copied, then run a block."""
        if not empty:
            self._step(calls, FLAG_PREPARE)
        taken = super().block(calls, empty, depth)
        (said,) = _DOUBLE.unpack(self.memory(self.hello["device_seconds"], _DOUBLE.size))
        self.device_seconds = said if math.isfinite(said) else 0.0
        return taken

    def fetch(self, call: int) -> list[int] | None:
        """Have a call's outputs and inputs copied to the host; addresses of the outputs there."""
        self._step(call, FLAG_COLLECT)
        width = self.hello["width"]
        return list(struct.unpack(f"<{width}Q", self.memory(self.hello["copies"], 8 * width)))

    def input_bytes(self, layout: Layout, _slot: int, index: int, place: range) -> bytearray:
        """What these bytes of an input of the call last fetched held then."""
        return self.memory(self.hello["input_copy"] + layout.offsets[index] + place.start, len(place))

    def written(self, _layout: Layout, _slot: int, _index: int, _size: int) -> None:
        """Nobody knows that of a device's memory."""

    def close(self, _core: int | None = None) -> None:
        """Nothing: it serves for all pairs of its subgraph."""

    def end(self) -> None:
        """End the process."""
        super().close()
