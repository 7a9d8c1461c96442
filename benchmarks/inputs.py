"""How fast fresh inputs are made: `python benchmarks/inputs.py [--tasks N]`.

Prints the GB/s on one core per dtype, for every generator of this machine, beside copying from a pool, which is the
cost of recurring values. Then prints the milliseconds to fill all blocks of a subgraph's measurement, for N of the
tasks: six pairs of eight rounds, in the slots of the subgraph's layout.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs import Inputs, default
from pytest_passbench.judge.inputs.generator import Generator, Native, Portable
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.kernels.toolchain import CompileError
from pytest_passbench.suite.taskfile import read_task
from pytest_passbench.timing.rounds import BLOCK_SECONDS

TASKS = Path(__file__).resolve().parents[1] / "tasks"
BYTES = 1 << 20  # of one input
BLOCKS = 6 * 8
BANDWIDTH = 5e9  # bytes a second that a subgraph is taken to read, which gives the number of calls in a block
CASES = {
    **{dtype: TensorSpec("x", (1,), dtype, mean=0.0, std=1.0) for dtype in ("float32", "bfloat16", "float16")},
    **{dtype: TensorSpec("x", (1,), dtype, mean=0.0, std=1.0) for dtype in ("float64", "complex64")},
    **{dtype: TensorSpec("x", (1,), dtype, min=0.0, max=99.0) for dtype in ("int64", "int32", "int16", "int8")},
    "int64, wide": TensorSpec("x", (1,), "int64", min=-(2.0**60), max=2.0**60),
    "bool": TensorSpec("x", (1,), "bool"),
    "mask, float32": TensorSpec("x", (1,), "float32", min=float("-inf"), max=0.0),
}


def generators() -> list[Generator]:
    """Return every generator that this machine has."""
    try:
        ciphers = range(Native().cipher, -1, -1)
    except CompileError as error:
        return [Portable(str(error))]
    return [*(Native(cipher) for cipher in ciphers), Portable("numpy")]


def best(work: Callable[[], object], seconds: float = 0.15) -> float:
    """Return the least seconds that ``work`` takes, of as many calls as fit into ``seconds``."""
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begin)
    return least


def by_dtype() -> None:
    """Print a table of GB/s."""
    found = generators()
    names = [one.name.partition(",")[0] for one in found]
    print("| GB/s | copy | " + " | ".join(names) + " |\n|---|---:|" + "---:|" * len(names))
    for name, one in CASES.items():
        size = torch.empty((), dtype=getattr(torch, one.dtype)).element_size()
        spec = TensorSpec("x", (BYTES // size,), one.dtype, one.mean, one.std, one.min, one.max)
        pages, calls = Pages(plan_layout([spec])), 24
        pool = torch.empty(4 * BYTES, dtype=torch.uint8).random_()
        rates = [calls * BYTES / best(lambda: copied(pages, pool, calls)) / 1e9]  # noqa: B023
        for generator in found:
            inputs = Inputs([spec], b"a key", generator)
            rates.append(calls * BYTES / best(lambda: inputs.write(inputs.draw(calls), pages)) / 1e9)  # noqa: B023
        print(f"| {name} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |", flush=True)
        pages.close()


def copied(pages: Pages, pool: torch.Tensor, calls: int) -> None:
    """Fill the pages with windows of a pool."""
    for call in range(calls):
        offset = random.randrange(3 * BYTES) // 64 * 64
        ctypes.memmove(pages.addresses[0][call], pool.data_ptr() + offset, BYTES)


def by_subgraph(tasks: int) -> None:
    """Print the milliseconds to fill a subgraph's blocks: median, 90th percentile and most."""
    paths = sorted(TASKS.rglob("*.task.yaml"))
    spent = []
    for path in random.Random(0).sample(paths, min(tasks, len(paths))):
        subgraph = random.Random(0).choice(read_task(path).subgraphs)
        layout = plan_layout(subgraph.inputs)
        calls = max(1, min(layout.slots, round(BLOCK_SECONDS * BANDWIDTH / max(layout.stride, 1))))
        pages, inputs = Pages(layout), Inputs(subgraph.inputs, b"a key")
        inputs.write(inputs.draw(layout.slots), pages)
        begin = time.perf_counter()
        for _ in range(BLOCKS):
            inputs.write(inputs.draw(calls), pages)
        spent.append((time.perf_counter() - begin) * 1e3)
        pages.close()
    ordered = sorted(spent)
    print(
        f"\n{default().name}, {BLOCKS} blocks of each of {len(spent)} subgraphs: median {median(spent):.1f} ms, "
        f"nine tenths below {ordered[int(0.9 * len(ordered))]:.1f} ms, most {ordered[-1]:.1f} ms"
    )


def main() -> None:
    """Print the rates by dtype, then the times by subgraph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100, help="how many tasks' first dtype to fill (default 100)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    by_dtype()
    by_subgraph(args.tasks)


if __name__ == "__main__":
    main()
