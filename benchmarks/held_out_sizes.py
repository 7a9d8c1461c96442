"""How many tasks of the suite have further sizes? Does eager run at them? Is a table by shape caught?

    python benchmarks/held_out_sizes.py [--draws 2] [--every 1]
    python benchmarks/held_out_sizes.py --table-by-shape 20

Eager runs the first mapped subgraph of each task with a map at so many drawn sizes, in this process.
The second command judges a candidate that knows only the sizes of one task, under so many seeds. Each must catch it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from pytest_passbench.core.seed import Secret
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.session import Session
from pytest_passbench.run.judging import records
from pytest_passbench.suite import find
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.sizes import NoMap, SizeMap, draws, size_map
from pytest_passbench.suite.taskfile import read_task
from shared import shape_tables

#: A call of the kernel with as many elements as a shape in the table has, and with too few for any other shape.
GUESS = "    lib.relu_squared(x, out, TABLE.get(tuple(x.shape), 64), x.dtype)"


def main() -> None:
    """Print the counts, and each size at which eager fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--table-by-shape", type=int, default=0, metavar="SEEDS")
    args = parser.parse_args()
    if args.table_by_shape:
        seeds = [f"seed {number}".encode() for number in range(args.table_by_shape)]
        with Session(Settings(pipeline="direct", audit="off", held_out=1), seeds[0]) as session:
            caught = sum(is_caught(session, seed) for seed in seeds)
        print(f"a table by shape was caught under {caught} of {args.table_by_shape} seeds")
        raise SystemExit(caught < args.table_by_shape)
    torch.set_num_threads(1)
    reasons, outcomes, mapped, total = Counter[str](), Counter[str](), 0, 0
    for path in sorted(find.installed_tasks().rglob("*.task.yaml"))[:: args.every]:
        task = read_task(path)
        if "train" in task.header.tags:
            continue
        total += 1
        maps = [size_map(task, subgraph) for subgraph in task.subgraphs]
        first = next((item for item in maps if isinstance(item, SizeMap)), None)
        if first is None:
            reasons.update([Counter(item.reason for item in maps if isinstance(item, NoMap)).most_common(1)[0][0]])
            continue
        mapped += 1
        outcomes.update(run_eager(task, first, args.draws))
    print(f"{mapped} of {total} tasks have a map; the others: {dict(reasons)}")
    print(f"eager at {args.draws} drawn sizes each: {dict(outcomes)}")


def is_caught(session: Session, seed: bytes) -> bool:
    """Return True if a table by shape is right at all of a task's own sizes, and wrong at all further sizes."""
    part, start = shape_tables.task(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        candidate = shape_tables.candidate(Path(folder), GUESS, part)
        session.begin(seed)
        results = list(records(session, part, candidate, Settings()))
    right = sum(record.correct for record in results)
    failures = sum(len(record.held_out_failures) for record in results)
    total = sum(len(record.held_out_judged) for record in results)
    seconds = time.monotonic() - start
    print(
        f"{seed.decode()}: right {right}/{len(results)}, wrong at {failures}/{total} further sizes; {seconds:.0f} s"
    )
    return right == len(results) > 0 and failures == total == len(results)


def run_eager(task: Task, sizes: SizeMap, count: int) -> list[str]:
    """Return "ran" or "failed" for eager at each of ``count`` drawn sizes of a subgraph."""
    stream, outcomes = Secret(b"sizes", task.id).stream("sizes"), list[str]()
    for point, text, subgraph in draws(sizes, stream):
        if len(outcomes) == count:
            break
        inputs = Inputs(subgraph.inputs, b"k" * 32)
        try:
            with torch.no_grad():
                build_graph(text, task.id)(*inputs.call(inputs.draw(1), 0))
            outcomes.append("ran")
        except Exception as error:
            print(f"{task.id} {subgraph.id} at {point}: {type(error).__name__}: {str(error)[:120]}")
            outcomes.append("failed")
    return outcomes


if __name__ == "__main__":
    main()
