"""For how many tasks ``passbench new`` writes a pass that agrees with eager: all, or those with a word in their id.

    python benchmarks/first_passes.py [WORD ...] [--triton] [--time] [--compile] [--every 5] [--suite lite]

Each pass is run in this process on all subgraphs, and compared with eager at t = -5. --triton and --compile take only
the smallest subgraph of each graph and dtype. --triton on a CPU needs TRITON_INTERPRET=1. --compile compiles Triton's
kernels for compute capability 9.0 instead of running them; no device is needed. --time has the judge measure each
right pass on the subgraph of median size, pipeline "direct". --every 5 takes every fifth task.
Prints a line per task, then the counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.first_pass.write import draft, write
from pytest_passbench.judge.arms.template import Answer
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.session import Session
from pytest_passbench.judge.survey import survey
from pytest_passbench.judge.trusted import TrustedSession
from pytest_passbench.suite import find

HOPPER = 90


def smallest(task: Task) -> Task:
    """Return a task with the smallest subgraph of each graph and dtype."""
    subgraphs: dict[tuple[str, str], Subgraph] = {}
    for subgraph in sorted(task.subgraphs, key=lambda subgraph: subgraph.elements):
        subgraphs.setdefault((subgraph.graph, subgraph.dtype), subgraph)
    return replace(task, subgraphs=tuple(subgraphs.values()))


def outcome(task: Task, args: argparse.Namespace, folder: Path) -> tuple[str, str]:
    """Return what became of a task's pass: green, red, none or broken, and details."""
    try:
        drafted = draft(task, args.triton)
        write(drafted, folder, force=False)
        asked = smallest(task) if args.triton or args.compile else task
        wrong = uncompiled(asked, folder) if args.compile else answers(asked, folder)
    except UserError as error:
        return "none", line(str(error), 160)
    except Exception as error:  # every fault of a written pass is counted
        return "broken", line(f"{type(error).__name__}: {error}", 160)
    whole = "whole" if not drafted.left else f"{len(drafted.left)} left to eager"
    files = f"{len(drafted.files)} files, {sum(text.count(chr(10)) for text in drafted.files.values())} lines"
    if wrong:
        return "red", line(f"{whole}: {len(wrong)}: {wrong[0]}", 200)
    return "green", line(f"{whole}: {files}: {'; '.join(dict.fromkeys(drafted.matched.values()))}", 160)


def answers(task: Task, folder: Path) -> list[str]:
    """Return a line for each subgraph on which a pass does not agree with eager at t = -5."""
    session = TrustedSession(Settings(pipeline="direct", trusted=True), b"x" * 32)
    records = session.judge(task, Candidate.open(folder))
    return [f"{record.subgraph}: {record.arm.message}{record.arm.worst}" for record in records if not right(record)]


def uncompiled(task: Task, folder: Path) -> list[str]:
    """Return the errors of compiling a pass's Triton kernels for a device of compute capability 9.0."""
    plain = Planner.answer

    def on_device(self: Planner, data: Any, _capability: int | None = None) -> Answer:
        tensors = [{**tensor, "device": "cuda:0"} for tensor in data["tensors"]]
        plain(self, {**data, "tensors": tensors}, HOPPER)
        return plain(self, data)

    with mock.patch.object(Planner, "answer", on_device):
        result = survey(folder, "kernels", task)
    errors = [finding.message for finding in result.findings if finding.severity in ("violation", "error")]
    return errors or ([] if result.plans else ["no plan was made"])


def right(record: Record) -> bool:
    """Return True if a subgraph's answer agrees with eager's at t = -5."""
    return record.arm.status == "ran" and max(record.arm.correct_from) <= -5


def speed(judge: Session, task: Task, folder: Path) -> float | None:
    """Return the speed-up on the subgraph of median size, or None if the answer is wrong or was not measured."""
    middle = sorted(task.subgraphs, key=lambda subgraph: subgraph.elements)[len(task.subgraphs) // 2]
    *_, record = judge.judge(replace(task, subgraphs=(middle,)), Candidate.open(folder))  # the last one counts
    return record.arm.speed.ratio if record.arm.speed is not None and right(record) else None


def main() -> None:
    """Print the outcome of each task, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--suite", default="full")
    args = parser.parse_args()
    torch.set_num_threads(1)
    counts, speeds = Counter[str](), list[float]()
    refs = find.select(find.discover(find.installed_tasks()), args.suite)
    refs = [ref for ref in refs if not args.words or any(word in ref.id for word in args.words)]
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for ref in refs[:: args.every]:
            with tempfile.TemporaryDirectory() as folder:
                status, details = outcome(ref.load(), args, Path(folder) / "pass")
                ratio = speed(judge, ref.load(), Path(folder) / "pass") if args.time and status == "green" else None
            counts[status] += 1
            counts["whole"] += status == "green" and details.startswith("whole")
            speeds += [] if ratio is None else [ratio]
            print(f"{ref.id}: {status}{'' if ratio is None else f' {ratio:.2f}x'}: {details}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    if speeds:
        print(f"median speed-up of {len(speeds)}: {statistics.median(speeds):.2f}")


if __name__ == "__main__":
    main()
