"""Faults made on purpose in the middle of a run: which records are kept, what is left behind, and for how long.

    python benchmarks/faults.py --repeat 5
    python benchmarks/faults.py --busy --only judge,controller   # with two busy loops beside

Prints a row per fault, with medians and the longest in brackets. "gone": seconds until nothing was left of the run,
or, if it goes on, of the processes that were hit. "returned": until the caller had the output of a run that the fault
ended. "next": until the next record of a run that goes on. Writes reports/benchmarks/faults.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from engine import REPORTS, write
from tabulate import tabulate

from pytest_passbench.judge.arms import sandbox
from shared import faulted_runs


def main() -> None:
    """Make the faults. Exit with 1 if anything is left or lost, or if a run returns 0 after a fault that ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="how often each fault (default: 3)")
    parser.add_argument("--only", default="", metavar="FAULT,...", help=f"of {', '.join(faulted_runs.FAULTS)}")
    parser.add_argument("--busy", action="store_true", help="with two busy loops beside")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(faulted_runs.FAULTS)
    found = {fault: [_struck(fault, arguments.busy) for _ in range(arguments.repeat)] for fault in chosen}
    rows = [_row(fault, outcomes) for fault, outcomes in found.items()]
    print(f"sandbox: {sandbox.walls()}{', two busy loops beside' if arguments.busy else ''}")
    print(tabulate(rows, headers="keys", disable_numparse=True))
    REPORTS.mkdir(parents=True, exist_ok=True)
    write("faults", {"busy": arguments.busy, "outcomes": {f: [asdict(o) for o in each] for f, each in found.items()}})
    everything = [outcome for outcomes in found.values() for outcome in outcomes]
    bad = [
        outcome
        for outcome in everything
        if outcome.left
        or outcome.kept < outcome.before
        or (faulted_runs.FAULTS[outcome.fault].ends and outcome.code == 0)
    ]
    for outcome in bad:
        print(outcome)
    sys.exit(bool(bad))


def _struck(fault: str, busy: bool) -> faulted_runs.Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faulted_runs.prepare(folder)
        (outcome,) = faulted_runs.strike([fault], folder, *(["--busy"] if busy else []))
        return outcome


def _row(fault: str, outcomes: Sequence[faulted_runs.Outcome]) -> dict[str, str]:
    ends = faulted_runs.FAULTS[fault].ends
    wrong = sorted({f"{task}: {word}" for o in outcomes for task, word in o.statuses.items() if word != "correct"})
    return {
        "fault": fault,
        "times": str(len(outcomes)),
        "exit codes": ", ".join(sorted({str(outcome.code) for outcome in outcomes})),
        "records before, kept": ", ".join(f"{outcome.before}, {outcome.kept}" for outcome in outcomes[:1]),
        "not correct": "; ".join(wrong) or "-",
        "left": "; ".join(sorted({place for outcome in outcomes for place in outcome.left})) or "nothing",
        "gone s": _seconds([outcome.gone for outcome in outcomes]),
        "returned s": _seconds([outcome.returned for outcome in outcomes]) if ends else "-",
        "next s": _seconds([outcome.next for outcome in outcomes if outcome.next is not None]),
    }


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.2f} [{max(values):.2f}]" if values else "-"


if __name__ == "__main__":
    main()
