"""How much of the possible a run reached, by two bounds: head-room's, and that of a judged kernel that only negates.

    python benchmarks/reachable.py reports/RUN     on the machine of the run, which does nothing else

Head-room's bound is a copy that is repeated in warm caches. A judged call gets inputs that another core has just
written, and writes to memory of its own, so no program reaches that bound. The second bound is the time of a judged
kernel that negates as many bytes. Eager's times are the run's. Subgraphs about a convolution or a product are left
out, and for each bound those whose greatest possible speed-up by it is below 1.5.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from engine import machine, write
from tabulate import tabulate

from pytest_passbench.core.record import Record
from pytest_passbench.forge.probe import Probe
from pytest_passbench.run import results_file
from pytest_passbench.score.possible import class_of, share
from pytest_passbench.score.subgraph import from_record
from pytest_passbench.suite.find import discover, installed_tasks
from shared.headroom import MOVED_BYTES, PeakRates, work
from shared.workspace import Workspace

SESSIONS = 3
NEGATION = """
def forward(in_0):
    tmp_0 = torch.neg(in_0)
    return (tmp_0,)
"""
NEGATING_PASS = """
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load('''
#include <cstdint>
extern "C" void negate(const float* __restrict x, float* __restrict out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = -x[i];
}''')

def pattern(x):
    return torch.neg(x)

def replacement_args(x):
    return (x,)

def negated(x):
    out = torch.empty_like(x)
    lib.negate(x, out, x.numel())
    return out

def replacement_func():
    return negated
"""


def main() -> None:
    """Judge the negations, and print the median shares by dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path, help="the results of a run with one candidate")
    records = results_file.read(parser.parse_args().results).records
    moves = negations()
    sizes = [[f"{moved:,}", f"{1e6 * seconds:.1f}"] for moved, seconds in moves]
    print(tabulate(sizes, headers=["bytes", "us"], colalign=("right", "right")), end="\n\n")
    shares = list(shares_of(records, PeakRates(moves, float("inf"))))
    rows: list[list[str]] = []
    for kind in ("float32", "half precision"):
        for place, bound in enumerate(("head-room", "a judged negation")):
            values = [pair[place] for dtype, pair in shares if dtype == kind]
            present = [value for value in values if value is not None]
            rows.append([kind, bound, f"{100 * median(present):.1f} %", str(len(present))])
    print(tabulate(rows, headers=["dtype", "bound", "share of the possible, median", "subgraphs"]))
    print(write("reachable", {"machine": machine(), "moves": moves, "medians": rows}))


def negations() -> tuple[tuple[int, float], ...]:
    """Judge a kernel that negates. Return the bytes that it moves and its seconds, the fewest bytes first.

    The best session counts, since other work disturbs it least. Every size is judged once before any is judged again.
    """
    least = dict.fromkeys(MOVED_BYTES, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        for moved in MOVED_BYTES:
            workspace.task(f"negation-{moved}", NEGATION, shapes=((moved // 8,),), ops=("neg",))
        workspace.candidate({"negation": NEGATING_PASS})
        for _ in range(SESSIONS):
            for record in workspace.records():
                moved = int(record.task.rpartition("-")[2])
                least[moved] = min(least[moved], record.arm.speed.other_us * 1e-6)
    return tuple(least.items())


def shares_of(records: list[Record], rates: PeakRates) -> Iterator[tuple[str, tuple[float | None, float | None]]]:
    """Yield each subgraph's dtype, and its share of the possible by both bounds (None: less than 1.5 is possible)."""
    tasks = {ref.id: ref.load() for ref in discover(installed_tasks())}
    for record in records:
        item = from_record(record)
        if class_of(item.operators) in ("convolution", "product"):
            continue
        task = tasks[record.task]
        subgraph = next(s for s in task.subgraphs if s.id == record.subgraph)
        eager_us = record.arm.speed.eager_us if record.arm.speed else float(subgraph.meta.get("eager_us", 0.0))
        least = rates.copy_seconds(work(Probe(task, subgraph)).bytes)
        kind = "float32" if subgraph.dtype == "float32" else "half precision"
        yield kind, (share(item), share(replace(item, headroom=eager_us * 1e-6 / least)))


if __name__ == "__main__":
    main()
