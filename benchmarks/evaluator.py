"""Seconds of an evaluator's calls, the first and later ones, with 1, 4 and 16 candidates; beside one pytest run each.

    python benchmarks/evaluator.py
    python benchmarks/evaluator.py --task silu-mul-e747 --calls 20 --pytest 0

Every candidate is a text that no call has judged before, as in a training loop: its kernel is compiled. With
``--same`` it is the same text each time. Writes reports/benchmarks/evaluator.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from engine import REPORTS, machine, write

import pytest_passbench
from pytest_passbench.api import Outcome
from pytest_passbench.judge.arms.processes import descendants

ROOT = Path(__file__).resolve().parent.parent
TASK = "add-relu-6709"  # 6 subgraphs
PASS = "add_relu"
COUNTS = (1, 4, 16)
MANIFEST = "sorted_output_pass_rule_names.json"


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", default=TASK, metavar="ID")
    parser.add_argument("--candidates", type=int, action="append", metavar="N", help="of a call; may be repeated")
    parser.add_argument("--candidate", default=str(ROOT / "candidates" / "cpu-fused"), metavar="DIR")
    parser.add_argument("--pass", dest="name", default=PASS, metavar="NAME", help="the pass to judge")
    parser.add_argument("--calls", type=int, default=10, metavar="N", help="later calls of each kind")
    parser.add_argument("--pytest", type=int, default=1, metavar="N", help="pytest runs of each number of candidates")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of a call")
    parser.add_argument("--same", action="store_true", help="the same text in every call")
    args = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    texts = answers(Path(args.candidate), args.name, args.same)
    rows = []
    for count in args.candidates or COUNTS:
        rows.append(measured(args, texts, count))
        print({key: value for key, value in rows[-1].items() if key != "calls"}, flush=True)
        write("evaluator", {"machine": machine(), "task": args.task, "budget": args.budget, "rows": rows})


def answers(folder: Path, name: str, same: bool) -> Iterator[dict[str, str]]:
    """Yield the files of one pass without end. Unless ``same``, each time with another comment in the kernels."""
    files = {path.name: path.read_text() for path in folder.glob("*.py")}
    used = {file: text for file, text in files.items() if f".{file[:-3]} import" in files[f"{name}.py"]}
    used[f"{name}.py"] = files[f"{name}.py"]
    number = 0
    while True:
        number += not same
        mark = f'#include "passbench.h"\n// attempt {number} of {time.time_ns() if not same else 0}'
        texts = {file: text.replace('#include "passbench.h"', mark) for file, text in used.items()}
        yield {**texts, MANIFEST: f'["{name}"]'}


def measured(args: argparse.Namespace, texts: Iterator[dict[str, str]], count: int) -> dict[str, Any]:
    """Return the seconds of a new evaluator's calls with ``count`` candidates each, and of pytest runs."""
    begin, runs, seconds, below = time.perf_counter(), list[list[Outcome]](), list[float](), list[int]()
    with pytest_passbench.Evaluator(args.task, pipeline="direct", budget=args.budget) as evaluator:
        for _ in range(args.calls + 1):
            start = time.perf_counter() if seconds else begin
            runs.append(evaluator.evaluate_many([next(texts) for _ in range(count)]))
            seconds.append(time.perf_counter() - start)
            below.append(len(descendants(os.getpid())))
    later = [run for call in runs[1:] for run in call]
    widths = [(s.high / s.low) ** 0.5 - 1 for run in later for r in run.records if (s := r.arm.speed) is not None]
    rewards = [run.reward() for run in later]
    return {
        "candidates": count,
        "first": seconds[0],
        "later_median": median(seconds[1:]),
        "later_least": min(seconds[1:]),
        "later_most": max(seconds[1:]),
        "correct": median(run.score("correct") or 0.0 for run in later),
        "half_width_median": median(widths) if widths else None,
        "reward_half_width_median": median((reward.high / reward.low) ** 0.5 - 1 for reward in rewards),
        "pytest": [pytest_run(args, [next(texts) for _ in range(count)]) for _ in range(args.pytest)],
        "processes": (below[0], below[-1]),  # of the evaluator, after the first and the last call
        "calls": seconds,
    }


def pytest_run(args: argparse.Namespace, texts: list[dict[str, str]]) -> float:
    """Return the seconds of a pytest run for these candidates, from its start to its end."""
    with tempfile.TemporaryDirectory() as scratch:
        options = []
        for number, files in enumerate(texts):
            folder = Path(scratch) / f"answer-{number}"
            folder.mkdir()
            for name, text in files.items():
                (folder / name).write_text(text)
            options.append(f"--candidate={folder}")
        command = [sys.executable, "-m", "pytest", "-q", "--passbench", f"--passbench-task={args.task}", *options,
                   "--passbench-pipeline=direct", f"--passbench-report-dir={scratch}/reports"]  # fmt: skip
        begin = time.perf_counter()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
