"""How long eager takes: what selection needs to know, not a measurement of record."""

from __future__ import annotations

import statistics
import time

import torch

from pytest_passbench.forge.probe import Probe

SHORTEST, LONGEST = 5e-6, 50e-3
"""The eager time in seconds that a subgraph of the suite may take on one thread."""


def eager_seconds(probe: Probe, budget: float = 0.05) -> float:
    """The median time of one eager call in seconds, from at least three calls and at most ``budget`` seconds."""
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
    """Whether one call, after a first one, takes longer than any subgraph of the suite may."""
    with torch.no_grad():
        probe.module(*probe.inputs)
        start = time.perf_counter()
        probe.module(*probe.inputs)
    return time.perf_counter() - start > LONGEST


def suits(seconds: float) -> bool:
    """Whether that is neither too short nor too long."""
    return SHORTEST <= seconds <= LONGEST
