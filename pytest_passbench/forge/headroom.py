"""Head-room: how much faster than eager a subgraph could be at most.

No program is faster than one that reads every input and writes every output once at the bandwidth of a copy, does the
matrix products and convolutions at the best rate, and costs one call. The ratio of eager's time to that bound is the
head-room (the roofline model: Williams, Waterman and Patterson 2009, CACM 52:65).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_passbench.forge.probe import Probe

COPIED_BYTES = 1 << 26
"""More than the caches of one core hold."""
MATRIX = 768
REPEATS = 30


@dataclass(frozen=True)
class Machine:
    """The best rates of one thread: bytes a second of a copy (read and written), float32 operations a second of a
    matrix product, and seconds of a call that does nothing.
    """

    bandwidth: float
    flops: float
    call: float


def measure() -> Machine:
    """Return the rates of this machine: the best of ``REPEATS`` runs, which other work disturbs least."""
    source, target = torch.ones(COPIED_BYTES // 4), torch.empty(COPIED_BYTES // 4)
    left, right, product = (torch.ones(MATRIX, MATRIX) for _ in range(3))
    value = torch.ones(1)
    return Machine(
        bandwidth=2 * COPIED_BYTES / _best(lambda: target.copy_(source)),
        flops=2 * MATRIX**3 / _best(lambda: torch.mm(left, right, out=product)),
        call=_best(lambda: value.add_(0.0)),
    )


def _best(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Work:
    """The work of a subgraph that no program can avoid: bytes of inputs and outputs, operations of products."""

    bytes: int
    flops: int

    def seconds(self, machine: Machine) -> float:
        """Return the least time of the work on ``machine``."""
        return max(self.bytes / machine.bandwidth, self.flops / machine.flops) + machine.call


def work(probe: Probe) -> Work:
    """Return the work of a subgraph. Operations of elementwise operators are not counted: traffic bounds them."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs = probe.module(*(value.clone() for value in probe.inputs))
    moved = sum(value.numel() * value.element_size() for value in (*probe.inputs, *outputs))
    return Work(moved, int(counter.get_total_flops()))


def headroom(eager_us: float, least: Work, machine: Machine) -> float:
    """Return eager's time over the least time: 2 if a program could be twice as fast as eager at most."""
    return eager_us * 1e-6 / least.seconds(machine)


def of_task(ratios: list[float]) -> float:
    """Return a task's head-room: the median of its subgraphs', to two digits."""
    return float(f"{statistics.median(ratios):.2g}")
