"""What a candidate's Python wrapper costs a call: the wrapper as it was written, beside its launch plan.

    python benchmarks/replay.py --passes 20

Every pass of ``candidates/cpu-fused`` that matches a subgraph of the suite is built three times in this process: with
the wrapper itself, with its plan as generated Python, and with a plan whose steps the engine makes. Eager and all of
them run in turn, in blocks of calls on the same tensors. Microseconds are medians of blocks. Nothing here is judged:
outputs are compared for equal bits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tabulate import tabulate

from pytest_passbench.core.paths import ENGINE
from pytest_passbench.deploy.passes import recorded, recorded_libraries, replayed
from pytest_passbench.judge.native_library import compiled
from pytest_passbench.plans.launch import Request
from pytest_passbench.reader.importing import load_passes
from pytest_passbench.reader.local import LocalKernels, as_passes
from pytest_passbench.rewrite.pipelines import build
from pytest_passbench.runner.engine import Engine
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.taskfile import read_task

ROOT = Path(__file__).parents[1]
FUSED = ROOT / "candidates" / "cpu-fused"
BLOCK, BLOCKS = 0.002, 60  # seconds of a block, and blocks of each program
SMALL = 400_000  # elements of a subgraph at most: beside longer kernels the wrapper's cost disappears


class PlannedKernels:
    """Kernels by plans that are recorded in this process. ``engine`` makes their steps, if there is one."""

    def __init__(self, wrappers: dict[str, Any], engine: Engine | None = None) -> None:
        self._wrappers, self._engine = wrappers, engine

    def kernel(self, request: Request) -> Any:
        plan, kernels = recorded(request, self._wrappers[request.name])
        return replayed(request, plan, kernels, self._engine)

    def regions(self, name: str, graph: str) -> list[list[str]]:  # noqa: ARG002
        return []  # only passes with a pattern are measured


def _loaded(stand_in: bool) -> list[Any]:
    names = json.loads((FUSED / "sorted_output_pass_rule_names.json").read_text())
    with recorded_libraries() if stand_in else nullcontext():
        return load_passes(FUSED, names)


def _times(programs: list[Callable[..., Any]], inputs: list[torch.Tensor]) -> list[float]:
    """Return the microseconds of a call of each program: medians of blocks that alternate with the others' blocks."""
    calls = []
    for program in programs:
        program(*inputs)
        start = time.perf_counter()
        for _ in range(10):
            program(*inputs)
        calls.append(max(1, int(10 * BLOCK / (time.perf_counter() - start))))
    blocks: list[list[float]] = [[] for _ in programs]
    for _ in range(BLOCKS):
        for program, count, times in zip(programs, calls, blocks, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                program(*inputs)
            times.append((time.perf_counter() - start) / count * 1e6)
    return [median(times) for times in blocks]


def _same(outputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    pairs = zip(outputs, others, strict=True)
    return all(torch.equal(output.nan_to_num(), other.nan_to_num()) for output, other in pairs)


def main() -> None:
    """Print a row per pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20, help="rows (default: 20)")
    wanted = parser.parse_args().passes
    torch.set_num_threads(1)
    real, noted = _loaded(False), _loaded(True)
    with compiled(ENGINE) as path:
        engine = Engine(str(path))
    rows: dict[str, list[Any]] = {}
    for path in sorted((ROOT / "tasks").rglob("*.task.yaml")):
        task = read_task(path)
        subgraph = min(task.subgraphs, key=lambda item: item.elements)
        if len(rows) >= wanted or subgraph.elements > SMALL:
            continue
        gm, inputs = build_graph(task.graphs[subgraph.graph], path.name), example_inputs(subgraph)
        with torch.no_grad():
            try:
                wrapper = build("direct", gm, as_passes(real), inputs, LocalKernels(real))
                wrappers = {item.name: item.wrapper for item in noted}
                plan, native = [
                    build("direct", gm, as_passes(noted), inputs, PlannedKernels(wrappers, maker))
                    for maker in (None, engine)
                ]
            except Exception as error:
                print(f"{task.id}: {type(error).__name__}: {str(error)[:80]}")
                continue
            names = [report.name for report in wrapper.reports if report.matches]
            if not wrapper.rewritten or names[0] in rows:
                continue
            same = all(_same(wrapper.call(*inputs), program.call(*inputs)) for program in (plan, native))
            eager, *times = _times([gm.forward, wrapper.call, plan.call, native.call], inputs)
        speeds = [eager, *times, *(eager / time for time in times)]
        rows[names[0]] = [names[0], subgraph.id, same, *speeds]
    heads = ["pass", "subgraph", "same bits", "eager us", "wrapper us", "plan us", "engine us"]
    heads += ["x wrapper", "x plan", "x engine"]
    print(tabulate(rows.values(), heads, floatfmt=".2f"))


if __name__ == "__main__":
    main()
