"""What `backend(...)` costs beside `torch.compile`: its first call, and later ones beside the judge's pipeline.

    python benchmarks/backend_calls.py                            # two minutes on a quiet machine
    python benchmarks/backend_calls.py --candidate candidates/trivial --rounds 9

First calls are made in fresh processes that have compiled another model before: with `backend="eager"`, with the
passes and their kernels in the cache, and with an empty cache. Later calls are those of a model of two operators on
16 elements, in alternation with what the pipeline `dynamo` builds of the same passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from functools import partial
from pathlib import Path
from statistics import median

import torch
from tabulate import tabulate
from transformers import BertConfig, BertModel

import pytest_passbench
from pytest_passbench.deploy.passes import DeployedPasses, open_directory
from pytest_passbench.rewrite import pipelines

CALLS = 2_000


class Small(torch.nn.Module):
    """A model so small that only the path of its call takes time."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the shape of both."""
        return torch.relu(x + y)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidate", type=Path, default=Path("candidates/cpu-fused"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", choices=("eager", "passes"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.first:
        print(json.dumps(first_call(args.first, args.candidate)))
        return
    with tempfile.TemporaryDirectory() as cache:
        first_in_a_process(args, "passes", cache)
        kinds = {"eager": ("eager", cache), "cached kernels": ("passes", cache), "empty cache": ("passes", None)}
        rounds = [{kind: first_in_a_process(args, *how) for kind, how in kinds.items()} for _ in range(args.rounds)]
    made, first = ({kind: median(times[kind][i] for times in rounds) for kind in kinds} for i in range(2))
    rows = [(kind, made[kind], first[kind], first[kind] / first["eager"]) for kind in kinds]
    headers = ("a transformers encoder", "backend made, s", "first call, s", "times eager's")
    print(tabulate(rows, headers, floatfmt=".2f") + "\n")
    with torch.no_grad():
        times = later_calls(args.candidate, args.rounds * 3)
    calls = [(name, median(values)) for name, values in times.items()]
    extra = median(a - b for a, b in zip(times["backend(...)"], times["dynamo pipeline"], strict=True))
    print(tabulate([*calls, ("difference", extra)], ("two operators on 16 elements", "us per call"), floatfmt=".2f"))


def first_in_a_process(args: argparse.Namespace, backend: str, cache: str | None) -> tuple[float, float]:
    """Return the seconds that making a backend and its first call take, in a process of its own."""
    command = [sys.executable, __file__, "--first", backend, "--candidate", str(args.candidate)]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "XDG_CACHE_HOME": cache or empty}
        output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    load, call = json.loads(output)
    return load, call


def first_call(name: str, candidate: Path) -> tuple[float, float]:
    """Return the seconds that making the backend ``eager`` or ``passes`` and its first call take."""
    sizes = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
    model, tokens = BertModel(sizes).eval(), torch.randint(0, 1000, (2, 16))
    with torch.no_grad():
        torch.compile(Small(), backend="eager")(torch.ones(16), torch.ones(16))
        model(tokens)
        began = time.perf_counter()
        backend = pytest_passbench.backend(candidate) if name == "passes" else name
        loaded = time.perf_counter()
        torch.compile(model, backend=backend)(tokens)
        return loaded - began, time.perf_counter() - loaded


def later_calls(candidate: Path, rounds: int) -> dict[str, list[float]]:
    """Return microseconds per call in each round: of the backend, and of the pipeline ``dynamo``."""
    inputs = [torch.randn(16), torch.randn(16)]
    source = DeployedPasses(open_directory(candidate, None))
    built = pipelines.build("dynamo", torch.fx.symbolic_trace(Small()), source.passes, inputs, source)
    compiled = torch.compile(Small(), backend=pytest_passbench.backend(candidate), dynamic=False)
    assert built.rewritten, f"no pass of {candidate} matches"
    programs = {"backend(...)": compiled, "dynamo pipeline": built.call}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            program(*inputs)
            times[name].append(timeit.timeit(partial(program, *inputs), number=CALLS) / CALLS * 1e6)
    return times


if __name__ == "__main__":
    main()
