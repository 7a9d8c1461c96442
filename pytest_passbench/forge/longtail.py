"""Step 6: TorchInductor's time over eager's on every graph, with its defaults, for one shape per dtype.

A cold compile takes seconds. So each (task, dtype) is a job of its own in a forked process, and its result is
kept.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.forge.pool import Job, run_jobs
from pytest_passbench.forge.probe import Probe

Function = Callable[..., Any]
PAIRS = 24
"""Rounds. Both arms run in each one, and take turns in running first."""


@dataclass(frozen=True)
class Ratio:
    """Eager's and the compiled graph's median seconds of one call."""

    task: str
    subgraph: str
    dtype: str
    eager: float
    inductor: float

    @property
    def speedup(self) -> float:
        """Eager's time over TorchInductor's; above 1 if compiling helps."""
        return self.eager / self.inductor


def jobs(tasks: Sequence[Task], folder: Path) -> list[Job]:
    """Return one job per task and dtype, for its median-sized subgraph."""
    made = []
    for task in tasks:
        for dtype in sorted({s.dtype for s in task.subgraphs}):
            subgraph = middle([s for s in task.subgraphs if s.dtype == dtype])
            target = folder / f"{task.id}.{dtype}.json"
            made.append(Job(target.stem, target, functools.partial(measure, task, subgraph, target)))
    return made


def middle(subgraphs: Sequence[Subgraph]) -> Subgraph:
    """Return the subgraph of median size."""
    return sorted(subgraphs, key=lambda s: (s.elements, s.id))[len(subgraphs) // 2]


def measure(task: Task, subgraph: Subgraph, target: Path) -> None:
    """Compile with TorchInductor's defaults, time both arms in alternation, and write the result to ``target``."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch.set_num_threads(1)
    probe = Probe(task, subgraph)
    compiled = torch.compile(probe.module)
    eager, inductor = alternate(probe.module, compiled, probe.inputs)
    record = {"task": task.id, "subgraph": subgraph.id, "dtype": subgraph.dtype, "eager": eager, "inductor": inductor}
    target.write_text(json.dumps(record), encoding="utf-8")


def alternate(first: Function, second: Function, inputs: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Return the median seconds per call of both functions, from ``PAIRS`` rounds of blocks of about half a
    millisecond.
    """
    times: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        first(*inputs), second(*inputs), second(*inputs)
        count = max(1, int(5e-4 / max(_block(first, inputs, 3), 1e-7)))
        for number in range(PAIRS):
            arms = [(first, times[0]), (second, times[1])]
            for function, found in arms if number % 2 else reversed(arms):
                found.append(_block(function, inputs, count))
    return statistics.median(times[0]), statistics.median(times[1])


def _block(function: Function, inputs: Sequence[torch.Tensor], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function(*inputs)
    return (time.perf_counter() - start) / count


def load(folder: Path) -> list[Ratio]:
    """Return every result in a folder."""
    return [Ratio(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def summary(ratios: Sequence[Ratio]) -> dict[str, Any]:
    """Return the share of graphs that default compiling slows down, and every ratio, for
    ``docs/suite-longtail.json``.
    """
    slowed = sum(r.speedup < 1.0 for r in ratios)
    return {
        "graphs": len(ratios),
        "slowed_by_inductor": round(slowed / max(1, len(ratios)), 4),
        "columns": ["task", "subgraph", "dtype", "eager_us", "inductor_us"],
        "ratios": [
            [r.task, r.subgraph, r.dtype, round(r.eager * 1e6, 2), round(r.inductor * 1e6, 2)] for r in ratios
        ],
    }


def run(tasks: Sequence[Task], folder: Path, processes: int, timeout: float) -> list[str]:
    """Measure the graphs that are not measured yet, and return the names of the jobs that failed."""
    return run_jobs(jobs(tasks, folder), processes, timeout)
