"""Runs of corpus entries beside their twins, in every pipeline and at every level of the audit.

    python -m support.corpus_runs --runs 3 --modes direct-standard,dynamo-paranoid now-and-then taken-over-blocks

(in ``tests``). Names are of entries or of pages; without names, all are judged. Prints a row for each entry and mode:
the outcome of each run, and for a right answer the ratio of its speed to its twin's.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from support.corpus import NOISE, Entry, combine, exploits, gain, honest, judge, outcome

MODES = ("direct-standard", "direct-paranoid", "dynamo-standard", "dynamo-paranoid")


def main() -> None:
    """Judge the entries and print their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an entry or a page")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="judge each so often")
    parser.add_argument("--modes", default=",".join(MODES), metavar="MODES", help="as pipeline-level,...")
    parser.add_argument("--seconds", type=float, default=0.15, metavar="S", help="wall time for each subgraph")
    args = parser.parse_args()
    entries = [entry for entry in (*exploits(), *honest()) if not entry.gpu and _named(entry, args.names)]
    for mode in args.modes.split(","):
        rows = [[entry.name, mode] for entry in entries]
        for _ in range(args.runs):
            for row, result in zip(rows, results(entries, *mode.split("-"), args.seconds), strict=True):
                row.append(result)
        print(tabulate(rows, headers=["entry", "mode", *map(str, range(1, args.runs + 1))]), flush=True)


def _named(entry: Entry, names: Sequence[str]) -> bool:
    return not names or entry.name in names or entry.page in names


def results(entries: Sequence[Entry], pipeline: str, level: str, seconds: float) -> list[str]:
    """Judge the entries and their twins in one session, and return a word for each of ``entries``."""
    names = {name for entry in entries for name in (entry.name, entry.twin)}
    judged = [entry for entry in (*exploits(), *honest()) if entry.name in names]
    with tempfile.TemporaryDirectory() as folder:
        candidate = combine(judged, Path(folder) / "all")
        records = judge(candidate, secrets.token_hex(), pipeline=pipeline, audit=level, budget=seconds * len(judged))
    return [_word(entry, records) for entry in entries]


def _word(entry: Entry, records: dict[str, list[Any]]) -> str:
    """Return the outcome of an entry. One that must not occur begins with a word in capital letters."""
    record = records[entry.name][-1]
    accused = next((finding.message for finding in record.findings if finding.severity == "violation"), None)
    passes = outcome(record, entry.criterion) == "passes"
    if entry.expect in ("passes", "refused"):
        right = passes or entry.expect == "refused"
        if accused is not None:
            return f"ACCUSED: {accused}"
        return "passes" if right else f"NOT PASSED: {record.arm.status}"
    if not passes:
        return record.arm.status
    twin = records[entry.twin][-1]
    times = record.arm.speed.ratio / twin.arm.speed.ratio if record.arm.speed and twin.arm.speed else float("nan")
    return f"{'THROUGH' if entry.expect == 'rejected' or gain(record, twin) >= NOISE else 'right'} {times:.2f}"


if __name__ == "__main__":
    main()
