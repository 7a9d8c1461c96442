"""Eager's time, for the selection of subgraphs only. It is not a careful measurement."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from pytest_passbench.forge.probe import Probe

MIN_SECONDS, MAX_SECONDS = 5e-6, 50e-3
"""Bounds of the eager time of a subgraph of the suite by the judge's clock, on one thread."""
MAX_EXCESS_SECONDS = 1e-6
"""The most that :func:`eager_seconds` may read above the judge's clock.

Of 39 subgraphs that took 2.1 to 4.9 us by the judge's clock, none read more than 5.5 us.
"""
MAX_CALLS = 50


def eager_seconds(probe: Probe, budget: float = 0.05) -> float:
    """Return the seconds of one eager call, less the seconds of a call that returns earlier outputs.

    The judge's clock takes off an empty block in the same way. Either time is the least of 3 to 50 calls in about
    ``budget`` seconds: other work on the machine can only lengthen a call.
    """
    with torch.no_grad():
        outputs = probe.module(*probe.inputs)
        return _least(probe.module, probe.inputs, budget) - _least(lambda *_inputs: outputs, probe.inputs, budget)


def _least(call: Callable[..., object], inputs: list[torch.Tensor], budget: float) -> float:
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < end and len(times) < MAX_CALLS):
        start = time.perf_counter()
        call(*inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def too_long(probe: Probe) -> bool:
    """Return True if a second call takes longer than any subgraph of the suite may."""
    with torch.no_grad():
        probe.module(*probe.inputs)
        start = time.perf_counter()
        probe.module(*probe.inputs)
    return time.perf_counter() - start > MAX_SECONDS


def suits(seconds: float) -> bool:
    """Return True if an eager time by the judge's clock is neither too short nor too long."""
    return MIN_SECONDS <= seconds <= MAX_SECONDS
