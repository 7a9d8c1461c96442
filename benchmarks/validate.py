"""Time and memory of ``passbench tasks validate`` on 2,500 published graph folders: `python benchmarks/validate.py`.

The folders are those of the package's own tasks, one subgraph each, in the published layout. Some have calls that
published graphs have, at least as many as were counted in 2,495 of them. A hundred are broken, in ten ways. The
folders are the same each time. `--count 30` adds as many graphs of whole models (whole_models.py), of 200 to
10,000 statements. Prints the command's summary, wall time, and the peak memory of all its processes together.

    python benchmarks/validate.py --folders 0 --count 30   # graphs of whole models alone
    python benchmarks/validate.py --folders 0 --rows 500   # whole graphs of the data set, of 200 statements or more
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path

from whole_models import whole_models

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.dataset import shards
from pytest_passbench.dataset.rows import input_spec
from pytest_passbench.suite.find import discover, installed_tasks
from pytest_passbench.suite.published import write_sample
from shared.batched_mask import PLACES, mask_source

LOG = "torch._C._log_api_usage_once('python.nn_module')"
GRADIENTS = "torch._C._set_grad_enabled(False)"
AUTOCAST = "torch.amp.autocast_mode._enter_autocast('cuda', None, False, None)"
LEAVE_AUTOCAST = "torch.amp.autocast_mode._exit_autocast(entered)"
CALLS = (("log", LOG, 66), ("grad", GRADIENTS, 13), ("entered", AUTOCAST, 9))
COMMAND = "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"
MASKS, ATTENTIONS, EACH = 39, 5, 10
DATASET = Path(__file__).parents[1] / "dataset"
LONG = 200
"""The fewest statements of a long graph."""
ATTENTION = (
    "def forward(in_0, in_1, in_2, in_3, in_4):\n"
    "    tmp_0 = torch._native_multi_head_attention(in_0, in_0, in_0, 8, 2, in_1, in_2, in_3, in_4, None, False)\n"
    "    tmp_1 = tmp_0[0]\n"
    "    return (tmp_1,)\n"
)


def main() -> int:
    """Write the folders, run the command on them, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=2500)
    parser.add_argument("--count", type=int, default=0, help="graphs of whole models")
    parser.add_argument("--rows", type=int, default=0, help="whole graphs of the data set, drawn by chance")
    parser.add_argument("--processes", type=int, help="as the command has it")
    parser.add_argument("--keep", type=Path, help="write the folders here, and leave them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = args.keep or Path(scratch)
        broken = write_folders(place, args.folders)
        lengths = sorted(write_whole_models(place, args.count) + write_rows(place, args.rows))
        line = [sys.executable, "-c", COMMAND, "tasks", "validate", str(place)]
        line += [] if args.processes is None else [f"--processes={args.processes}"]
        begin = time.perf_counter()
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            peak = Peak(process.pid)
            out = process.stdout.read() if process.stdout else ""
            code = process.wait()
        seconds = time.perf_counter() - begin
    print(out, end="")
    print(f"{args.folders} folders, {broken} broken; {args.count} whole models, {args.rows} rows; exit code {code}")
    if lengths:
        print(f"statements: {lengths[0]:,} to {lengths[-1]:,}, median {lengths[len(lengths) // 2]:,}")
    peak.stop()
    print(f"{seconds:.1f} s, {peak.processor_seconds:.1f} s of a core's time; load {os.getloadavg()[0]:.1f}")
    print(f"at most {peak.bytes / 2**20:,.0f} MiB in {peak.processes} processes")
    return 0


class Peak:
    """The largest sum of the resident memory of a process and those below it (shared pages counted once: PSS).

    ``processor_seconds`` is the time on a core that they took, as far as it was seen four times a second.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self.bytes, self.processes = pid, 0, 0
        self._times: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    @property
    def processor_seconds(self) -> float:
        """The seconds on a core of all processes together."""
        return sum(self._times.values())

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            seen = list(family(self._pid))
            sizes = [size for pid in seen if (size := proportional(pid))]
            self.bytes, self.processes = max(self.bytes, sum(sizes)), max(self.processes, len(sizes))
            self._times.update((pid, taken) for pid in seen if (taken := processor_seconds(pid)))


def processor_seconds(pid: int) -> float:
    """Return the seconds that a process has run on a core."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of all processes below it."""
    yield pid
    try:
        below = [
            int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()
        ]
    except OSError:
        return
    for child in below:
        yield from family(child)


def proportional(pid: int) -> int:
    """Return the bytes of memory that a process has, with its share of the pages that others have too."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


# The folders


def write_folders(place: Path, count: int) -> int:
    """Write ``count`` sample folders, and return how many of them are broken."""
    samples = islice(cycle(list(graphs())), count)
    broken = [fault for fault in FAULTS for _ in range(EACH)] if count > 20 * EACH else []
    step = count // max(1, len(broken))
    for number, task in enumerate(samples):
        digest = sha256(f"{task.id} {number}".encode()).hexdigest()
        folder = place / "samples" / digest[:2] / f"{digest[:16]}"
        write_sample(with_calls(task, number), folder, "cuda:0")
        inner = folder / task.subgraphs[0].id
        (inner / "graph_net.json").write_text(
            json.dumps({"framework": "torch", "model_name": task.header.sources[0]})
        )
        if number % step == step - 1 and number // step < len(broken):
            broken[number // step](folder, inner)
    return len(broken)


def write_whole_models(place: Path, count: int) -> list[int]:
    """Write graphs of whole models as sample folders, and return the numbers of their statements."""
    lengths = []
    for number, (task, statements) in enumerate(whole_models(count)):
        write_sample(task, place / "models" / f"{number}-{task.id}", "cuda:0")
        (place / "models" / f"{number}-{task.id}" / "0" / "graph_net.json").write_text("{}")
        lengths.append(statements)
    return lengths


def write_rows(place: Path, count: int) -> list[int]:
    """Write long whole graphs of the data set as sample folders, and return the numbers of their statements."""
    whole = [row for row in shards.read(DATASET) if row.kind == "whole"] if count else []
    rows = [row for row in whole if statements_of(row.source) >= LONG]
    drawn = random.Random(0).sample(rows, min(count, len(rows)))
    for row in drawn:
        task = alone(row.id, row.source, tuple(map(input_spec, row.inputs)), row.dtype)
        write_sample(task, place / "rows" / row.id, "cuda:0")
        (place / "rows" / row.id / task.subgraphs[0].id / "graph_net.json").write_text("{}")
    return [statements_of(row.source) for row in drawn]


def statements_of(source: str) -> int:
    """Return the number of a graph's statements."""
    return source.count("\n    ")


def graphs() -> Iterator[Task]:
    """Yield the tasks of one subgraph: the masks and attentions of published graphs, then the package's own."""
    mask = (
        TensorSpec("in_0", (2, 5), "bool"),
        TensorSpec("in_1", (5,), "int64", min=0, max=4),
        floats("in_2", (2, 1, 5, 5)),
    )
    for number in range(MASKS):
        yield alone("mask", mask_source(PLACES[number % 2]), mask)
    shapes = ((2, 3, 8), (24, 8), (24,), (8, 8), (8,))
    inputs = tuple(floats(f"in_{i}", shape) for i, shape in enumerate(shapes))
    for _ in range(ATTENTIONS):
        yield alone("attention", ATTENTION, inputs)
    for ref in discover(installed_tasks()):
        task = ref.load()
        for subgraph in task.subgraphs:
            yield replace(task, graphs={subgraph.graph: task.graphs[subgraph.graph]}, subgraphs=(subgraph,))


def floats(name: str, shape: tuple[int, ...]) -> TensorSpec:
    """Return an input of normally distributed numbers."""
    return TensorSpec(name, shape, "float32", mean=0.0, std=1.0)


def alone(name: str, source: str, inputs: tuple[TensorSpec, ...], dtype: str = "float32") -> Task:
    """Return a task of one graph."""
    header = TaskHeader(name, ("none",), ("published",), (), 1, "text")
    return Task(header, Path(name), {"g0": source}, (Subgraph("subgraph_0", "g0", dtype, inputs),))


def with_calls(task: Task, number: int) -> Task:
    """Return the task with the call that graphs of this number have, if any, before its first statement."""
    key, source = next(iter(task.graphs.items()))
    first = MASKS + ATTENTIONS
    for name, call, count in CALLS:
        if first <= number < first + count:
            head, body = source.split(":\n", 1)
            tail = f"    left = {LEAVE_AUTOCAST}\n" if call is AUTOCAST else ""
            body, end = body.rsplit("    return", 1)
            text = f"{head}:\n    {name} = {call}\n{body}{tail}    return{end}"
            return replace(task, graphs={key: text})
        first += count
    return task


def change(path: Path, old: str, new: str) -> None:
    """Replace a text in a file."""
    text = path.read_text()
    path.write_text(text.replace(old, new, 1))


def insert(call: str) -> Callable[[Path, Path], None]:
    """Return a fault: a call before the last statement."""
    return lambda _folder, inner: change(
        inner / "model.py", "        return", f"        bad = {call}\n        return"
    )


FAULTS: tuple[Callable[[Path, Path], object], ...] = (
    insert("torch.load('weights.pt')"),
    insert("torch.ops.torchvision.nms(in_0, in_0, 0.5)"),
    insert("torch._functorch.predispatch._vmap_increment_nesting(2, 'error')"),
    insert(AUTOCAST.replace("False", "True")),
    insert("[in_0 for name in in_0]"),
    lambda _folder, inner: change(inner / "model.py", "return (", "return ("[:-1] + "(("),
    lambda _folder, inner: change(inner / "weight_meta.py", '"torch.', '"torch.q'),
    insert("torch.matmul(in_0, torch.ones((977, 3)))"),
    lambda _folder, inner: (inner / "graph_net.json").write_text("{"),
    lambda folder, _inner: (folder / "graph_list.txt").write_text("subgraph_1\n"),
)

if __name__ == "__main__":
    sys.exit(main())
