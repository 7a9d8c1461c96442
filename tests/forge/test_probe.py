"""The forge's clock for eager, and the shortest time that it lets into the suite."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge import curate
from pytest_passbench.forge.curate import choose
from pytest_passbench.forge.instances import Instance
from pytest_passbench.forge.probe import Probe, eager_seconds

X = TensorSpec("in_0", (8, 64), "float32", 0.1, 1.0)
SOURCE = "def forward(in_0):\n    tmp_0 = torch.tanh(in_0)\n    return (tmp_0,)\n"
DRAWN = Instance(("tanh",), SOURCE, "float32", (X,), "a/b", "text", "b1n8", "a/b (batch 1, size 8)")


class Clock:
    """A clock that moves by a microsecond when it is read, as the call that it times costs something itself."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        self.now += 1e-6
        return self.now


def probe() -> Probe:
    header = TaskHeader("planted", ("tanh",), ("test/planted",), (), 1, "text")
    planted = Task(header, Path("planted.task.yaml"), {"g": SOURCE}, (Subgraph("s", "g", "float32", (X,)),))
    return Probe(planted, planted.subgraphs[0])


@pytest.mark.parametrize("disturbance", [0.0, 30e-6])
def test_neither_the_call_itself_nor_other_work_counts(monkeypatch: pytest.MonkeyPatch, disturbance: float) -> None:
    clock, made, calls = Clock(), probe(), []
    plain = made.module.forward

    def forward(*inputs: torch.Tensor) -> object:
        calls.append(1)
        clock.now += 4e-6 + disturbance * (len(calls) % 4 != 0)
        return plain(*inputs)

    monkeypatch.setattr(made.module, "forward", forward)
    monkeypatch.setattr(time, "perf_counter", clock.read)
    assert eager_seconds(made) == pytest.approx(4e-6)


@pytest.mark.parametrize(("seconds", "refused"), [(5.6e-6, True), (6.4e-6, False), (49e-3, False), (51e-3, True)])
def test_the_forge_leaves_room_for_a_clock_that_reads_less(
    monkeypatch: pytest.MonkeyPatch, seconds: float, refused: bool
) -> None:
    monkeypatch.setattr(curate, "eager_seconds", lambda _probe: seconds)
    chosen = choose([replace(DRAWN, inputs=(replace(X, std=2.0),))], 1)
    assert bool(chosen.refusals) == refused
    assert all("6 us to 50 ms are allowed" in text for text in chosen.refusals)
    assert len(chosen.instances) == (not refused)
