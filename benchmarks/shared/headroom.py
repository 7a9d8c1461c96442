"""Head-room: how much faster than eager a subgraph could be at most.

The bound is a program that moves as many bytes as a graph's inputs and outputs have, as fast as one copy does. It
does the matrix products and convolutions at the best rate. Eager's time over the bound's is the head-room (the
roofline model: Williams, Waterman and Patterson 2009, CACM 52:65).
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_passbench.forge.probe import Probe

MOVED_BYTES = tuple(1 << power for power in range(10, 28))
"""Bytes that the measured copies read and write: from a part of the first cache to far more than the last one."""
MATRIX = 768
REPEATS = 60


@dataclass(frozen=True)
class PeakRates:
    """The best rates of one thread.

    ``copies``: (bytes read and written, seconds) of copies, the smallest first, a call included. ``flops``: float32
    operations a second of a matrix product.
    """

    copies: tuple[tuple[int, float], ...]
    flops: float

    def copy_seconds(self, moved: int) -> float:
        """Return the seconds of a copy that reads and writes ``moved`` bytes in all, interpolated linearly."""
        before, after = self.copies[0], self.copies[-1]
        for copy in self.copies:
            if copy[0] <= moved:
                before = copy
            elif copy[0] < after[0]:
                after = copy
                break
        if moved <= before[0]:
            return before[1]
        if moved >= after[0]:
            return after[1] * moved / after[0]
        share = (moved - before[0]) / (after[0] - before[0])
        return before[1] + share * (after[1] - before[1])


def measure() -> PeakRates:
    """Return the rates of this machine: the best of ``REPEATS`` runs, which other work disturbs least.

    Every size is run once before any is run again, so that a disturbance of a second is not in all runs of one size.
    """
    source, target = torch.ones(MOVED_BYTES[-1] // 8), torch.empty(MOVED_BYTES[-1] // 8)
    left, right, product = (torch.ones(MATRIX, MATRIX) for _ in range(3))
    runs: list[Callable[[], Any]] = [
        functools.partial(target[: moved // 8].copy_, source[: moved // 8]) for moved in MOVED_BYTES
    ]
    runs.append(functools.partial(torch.mm, left, right, out=product))
    best = [float("inf")] * len(runs)
    for _ in range(REPEATS):
        for number, run in enumerate(runs):
            run()  # not timed: the caches still hold the data of another size
            start = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - start)
    return PeakRates(tuple(zip(MOVED_BYTES, best, strict=False)), 2 * MATRIX**3 / best[-1])


@dataclass(frozen=True)
class Work:
    """The work of a subgraph that no program can avoid: bytes of inputs and outputs, operations of products."""

    bytes: int
    flops: int

    def seconds(self, machine: PeakRates) -> float:
        """Return the least seconds of the work on ``machine``."""
        return max(machine.copy_seconds(self.bytes), self.flops / machine.flops)


def work(probe: Probe) -> Work:
    """Return the work of a subgraph. Operations of elementwise operators are not counted: traffic bounds them."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs = probe.module(*(value.clone() for value in probe.inputs))
    moved = sum(value.numel() * value.element_size() for value in (*probe.inputs, *outputs))
    return Work(moved, int(counter.get_total_flops()))


def headroom(eager_us: float, least: Work, machine: PeakRates) -> float:
    """Return eager's time over the least time: 2 if a program could be twice as fast as eager at most."""
    return eager_us * 1e-6 / least.seconds(machine)


def of_task(ratios: list[float]) -> float:
    """Return a task's head-room: the median of its subgraphs', to two digits."""
    return float(f"{statistics.median(ratios):.2g}")
