"""Eager in float64 for calls that are verified after the probe. So any verified call may be judged by float64."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.verify.outputs import Output, read_call

MAX_SECONDS = 0.001  # expected, of all later references of a subgraph
EXPECTED_CALLS = 16  # that are verified after the probe


class LateReference:
    """The probe's runner of eager in float64, which stays stopped except for a call now and then.

    A verified call gets a reference by chance. The chance is such that they take :data:`MAX_SECONDS` on average.
    A call gets one in any case if the checker asks for it.
    """

    def __init__(self, runner: Runner, bench: Bench, seconds: float) -> None:
        """Take over a runner. ``seconds`` is the time of a reference."""
        self._runner: Runner | None = runner
        self._bench = bench
        self._draws = bench.secret.stream("calls in float64")
        self._chance = MAX_SECONDS / (EXPECTED_CALLS * max(seconds, 1e-6))

    def outputs(self, values: Sequence[torch.Tensor], always: bool = False) -> list[Output] | None:
        """Return the outputs in float64 on these inputs. Return None for most calls, unless ``always`` is set.

        It overwrites the first slot of the pages, so it comes after all else that is read of a block. A failure ends
        the runner and concerns nobody.
        """
        by_chance = self._draws.random() < self._chance
        if self._runner is None or not (always or by_chance):
            return None
        for addresses, value in zip(self._bench.pages.addresses, values, strict=True):
            flat = value.contiguous()
            ctypes.memmove(addresses[0], flat.data_ptr(), flat.numel() * flat.element_size())
        try:
            with self._bench.deadline.paused():
                self._runner.block(1)
                return read_call(self._runner, 0)
        except ArmFailure:
            self.close()
            return None

    def close(self) -> None:
        """End the runner."""
        if self._runner is not None:
            self._runner.close()
        self._runner = None
