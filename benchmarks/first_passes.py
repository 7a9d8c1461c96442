"""For how many tasks ``passbench new`` writes a pass that is as eager: all, or those with a word in their id.

    python benchmarks/first_passes.py [WORD ...] [--triton] [--suite lite]

Each pass is run in this process on the smallest subgraph of each graph and dtype, and compared with eager at t = -5.
With --triton on a CPU, set TRITON_INTERPRET=1. A line per task, then the counts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.first_pass.write import draft, write
from pytest_passbench.judge.trusted import TrustedSession
from pytest_passbench.suite import find


def outcome(task: Task, triton: bool, folder: Path) -> tuple[str, str]:
    """Return what became of a task's pass: green, red, none or broken, and details."""
    try:
        found = draft(task, triton)
        write(found, folder, force=False)
        chosen: dict[tuple[str, str], Subgraph] = {}
        for subgraph in sorted(task.subgraphs, key=lambda one: one.elements):
            chosen.setdefault((subgraph.graph, subgraph.dtype), subgraph)
        small = replace(task, subgraphs=tuple(chosen.values()))
        session = TrustedSession(Settings(pipeline="direct", trusted=True), b"x" * 32)
        wrong = [one for one in session.judge(small, Candidate.open(folder)) if not right(one)]
    except UserError as error:
        return "none", line(str(error), 160)
    except Exception as error:  # any fault of what was written is a figure here
        return "broken", line(f"{type(error).__name__}: {error}", 160)
    told = "; ".join(dict.fromkeys(found.matched.values()))
    whole = "whole" if not found.left else f"{len(found.left)} left to eager"
    if wrong:
        return "red", line(
            f"{whole}: {len(wrong)} of {len(small.subgraphs)}: {wrong[0].arm.message}{wrong[0].arm.worst}", 160
        )
    return "green", line(f"{whole}: {told}", 160)


def right(record: Record) -> bool:
    """Return True if a subgraph's answer agrees with eager's at t = -5."""
    return record.arm.status == "ran" and max(record.arm.correct_from) <= -5


def main() -> None:
    """Print the outcome of each task, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--suite", default="full")
    args = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for ref in find.select(find.discover(find.installed_tasks()), args.suite):
        if not args.words or any(word in ref.id for word in args.words):
            with tempfile.TemporaryDirectory() as folder:
                said, details = outcome(ref.load(), args.triton, Path(folder) / "made")
            counts[said] += 1
            counts["whole"] += said == "green" and details.startswith("whole")
            print(f"{ref.id}: {said}: {details}", flush=True)
    print(", ".join(f"{count} {said}" for said, count in counts.most_common()))


if __name__ == "__main__":
    main()
