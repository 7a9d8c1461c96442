"""A subgraph run by eager, for the curation rules: its values, whether a wrong value shows in its outputs, its time.

Null answers, which need no computation, are compared with its outputs.
Eager's time is for the selection of subgraphs only. It is no careful measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.agreement import level_of
from pytest_passbench.core.grouping import reached
from pytest_passbench.core.ladder import BITWISE
from pytest_passbench.core.null_answers import fixed_nulls, mean_answer, null_level
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.forge.clean import functional
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs

Tensors = Sequence[torch.Tensor]
NOTICING_T = -5
"""The t at which a wrong value must be noticed: that of the default tolerance of ``torch.testing``."""
MIN_SECONDS, MAX_SECONDS = 5e-6, 50e-3
"""Bounds of the eager time of a subgraph of the suite by the judge's clock, on one thread."""
MAX_EXCESS_SECONDS = 1e-6
"""The most that :func:`eager_seconds` may read above the judge's clock.

Of 39 subgraphs that took 2.1 to 4.9 us by the judge's clock, none read more than 5.5 us.
"""
MAX_CALLS, TIMING_SECONDS = 50, 0.05
Values = dict[fx.Node, Any]


def null_from(expected: Tensors, inputs: Tensors, stale: Tensors | None = None) -> int:
    """Return the smallest t at which every output of a subgraph passes with a null answer, or ``NEVER``.

    Null answers are zeros, ones, the mean, every input of the right shape, and another call's output (``stale``).
    """
    levels = []
    for index, output in enumerate(expected):
        ones = torch.ones((), dtype=output.dtype).expand(output.numel())
        nulls = [*fixed_nulls(output, inputs), ones, *mean_answer(output)]
        if stale is not None and stale[index].shape == output.shape:
            nulls.append(stale[index].reshape(-1))
        levels.append(null_level(output, nulls))
    return max(levels, default=BITWISE)


@dataclass
class Probe:
    """A subgraph with its module. Inputs and values are drawn and computed on first use."""

    task: Task
    subgraph: Subgraph
    seed: int = 1

    @cached_property
    def module(self) -> fx.GraphModule:
        """The graph."""
        return build_graph(self.task.graphs[self.subgraph.graph], str(self.task.path))

    @cached_property
    def pure(self) -> fx.GraphModule:
        """The graph with its in-place operators written as plain ones."""
        return functional(self.module)

    def draw(self, seed: int) -> list[torch.Tensor]:
        """Return fresh inputs."""
        return example_inputs(self.subgraph, seed)

    @cached_property
    def inputs(self) -> list[torch.Tensor]:
        """The inputs of :attr:`seed`."""
        return self.draw(self.seed)

    @cached_property
    def values(self) -> Values:
        """The values of all nodes of :attr:`pure` on :attr:`inputs`."""
        interpreter = fx.Interpreter(self.pure, garbage_collect_values=False)
        with torch.no_grad():
            interpreter.run(*(value.clone() for value in self.inputs))
        values: Values = interpreter.env
        return values

    @property
    def outputs(self) -> list[torch.Tensor]:
        """Eager's outputs on :attr:`inputs`."""
        return [self.values[node] for node in self.pure.graph.output_node().args[0]]

    @cached_property
    def stale(self) -> list[torch.Tensor]:
        """Eager's outputs on other inputs."""
        with torch.no_grad():
            return list(self.module(*self.draw(2)))

    @cached_property
    def null_from(self) -> int:
        """The t from which a null answer passes."""
        return null_from(self.outputs, self.inputs, self.stale)


def eager_seconds(probe: Probe) -> float:
    """Return the seconds of one eager call, less the seconds of a call that returns earlier outputs.

    The judge's clock takes off an empty block in the same way. Either time is the least of 3 to 50 calls in about
    ``TIMING_SECONDS``: other work on the machine can only lengthen a call.
    """
    with torch.no_grad():
        outputs = probe.module(*probe.inputs)
        return _least(probe.module, probe.inputs) - _least(lambda *_inputs: outputs, probe.inputs)


def _least(call: Callable[..., object], inputs: list[torch.Tensor]) -> float:
    times: list[float] = []
    end = time.perf_counter() + TIMING_SECONDS
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


def unnoticed(probe: Probe, node: fx.Node, value: Any) -> bool:
    """Return True if all outputs are correct at t = NOTICING_T although ``node`` had the value ``value``."""
    touched = reached([node, probe.pure.graph.output_node()], lambda other: other.users)
    unchanged = {other: item for other, item in probe.values.items() if other not in touched}
    with torch.no_grad():  # only nodes that depend on the changed one are computed again
        answers = fx.Interpreter(probe.pure, garbage_collect_values=False).run(initial_env={**unchanged, node: value})
    return all(map(same, answers, probe.outputs))


def same(answer: Any, expected: torch.Tensor) -> bool:
    """Return True if an answer is a tensor of the right shape that is correct at t = NOTICING_T."""
    if not isinstance(answer, torch.Tensor) or answer.shape != expected.shape:
        return False
    flat, beyond = (expected.reshape(-1), answer.reshape(-1)), NOTICING_T + 1
    return not expected.numel() or level_of(*flat, enough=beyond) < beyond
