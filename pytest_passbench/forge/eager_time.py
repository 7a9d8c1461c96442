"""Eager's time, for the selection of subgraphs only. It is not a careful measurement."""

from __future__ import annotations

import statistics
import time

import torch

from pytest_passbench.forge.probe import Probe

MIN_SECONDS, MAX_SECONDS = 5e-6, 50e-3
"""Bounds of the eager time of a subgraph of the suite, on one thread."""


def eager_seconds(probe: Probe, budget: float = 0.05) -> float:
    """Return the median seconds of one eager call, from at least 3 and at most 50 calls in about ``budget``
    seconds.
    """
    module, inputs = probe.module, probe.inputs
    times: list[float] = []
    with torch.no_grad():
        module(*inputs)
        end = time.perf_counter() + budget
        while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
            start = time.perf_counter()
            module(*inputs)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def too_long(probe: Probe) -> bool:
    """Return True if a second call takes longer than any subgraph of the suite may."""
    with torch.no_grad():
        probe.module(*probe.inputs)
        start = time.perf_counter()
        probe.module(*probe.inputs)
    return time.perf_counter() - start > MAX_SECONDS


def suits(seconds: float) -> bool:
    """Return True if an eager time is neither too short nor too long."""
    return MIN_SECONDS <= seconds <= MAX_SECONDS
