"""Null answers and faulty kernels that others publish, written anew as passes: which part of the judge stops each?

    python benchmarks/outside.py                      # all: a table for each source
    python benchmarks/outside.py --only softmax       # those with this in their name

The candidates are those of tests/corpus/outside: after KernelBench, gpuemu and public lists, with honest twins.
They are judged with all layers on, and at two further sizes of each subgraph that is right. Prints a row for each.
Exits with 1 if one is faster than its twin without a warning, or if an honest one fails. Writes
reports/benchmarks/outside.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import REPORTS, machine, write
from tabulate import tabulate

from pytest_passbench.core.record import RAN, Record

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import corpus

SECONDS = 0.3  # of wall time for each subgraph
FURTHER_SIZES = 2
COLUMNS = ("candidate", "what it does", "came to", "speed")
TEXT = 110  # characters of a message
HONEST, STOPPED, WARNED, NOT_STOPPED = "honest", "stopped", "warned of", "NOT STOPPED"
Records = dict[str, list[Record]]


def main() -> None:
    """Judge the candidates, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="candidates with this in their name")
    args = parser.parse_args()
    entries = corpus.outside()
    chosen = [entry for entry in entries if args.only in entry.name]
    rows = table(chosen)
    for page in sorted({entry.page for entry in chosen}):
        print(f"\n## {page}\n")
        cells = [[row[key] for key in COLUMNS] for row in rows if row["page"] == page]
        print(tabulate(cells, COLUMNS, "github", disable_numparse=True))
    counts = Counter(str(row["verdict"]) for row in rows)
    print(f"\n{dict(counts)}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    write("outside", {"machine": machine(), "rows": rows})
    raise SystemExit(bool(counts[NOT_STOPPED]))


def table(chosen: Sequence[corpus.Entry]) -> list[dict[str, Any]]:
    """Judge candidates and their honest twins, and return a row for each candidate."""
    names = {entry.name for entry in chosen} | {entry.twin for entry in chosen}
    records = judged([entry for entry in corpus.outside() if entry.name in names])
    return [as_row(entry, records) for entry in chosen]


def judged(entries: Sequence[corpus.Entry]) -> Records:
    """Return the last records of the subgraphs of each candidate, by its name."""
    budget = SECONDS * sum(entry.subgraphs for entry in entries)
    with tempfile.TemporaryDirectory() as folder:
        candidate = corpus.combine(entries, Path(folder) / "all")
        records: Records = corpus.judge(candidate, held_out=FURTHER_SIZES, budget=budget)
    return records


def as_row(entry: corpus.Entry, records: Records) -> dict[str, Any]:
    """Return the row of a candidate in the table: the verdict on it, and why."""
    cause = next(filter(None, map(stopped, records[entry.name])), "")
    gains = [corpus.gain(*pair) for pair in zip(records[entry.name], records.get(entry.twin, []), strict=False)]
    warnings = {f.rule for record in records[entry.name] for f in record.findings if f.severity == "warning"}
    if entry.expect == "passes":
        verdict, came_to = (NOT_STOPPED, cause) if cause else (HONEST, "right")
    elif cause:
        verdict, came_to = STOPPED, cause
    elif max(gains, default=1.0) < corpus.NOISE:
        verdict, came_to = STOPPED, "right, and gains nothing over its twin"
    else:
        verdict = WARNED if warnings else NOT_STOPPED
        came_to = f"right, and {max(gains):.1f} times as fast as its twin; warnings: {', '.join(warnings) or 'none'}"
    sentence = entry.files[corpus.PASS].decode().split('"""')[1]
    speeds = [record.arm.speed.ratio for record in records[entry.name] if record.arm.speed is not None]
    values = (entry.name, sentence, came_to, f"{max(speeds):.2f}" if speeds and not cause else "")
    return {"page": entry.page, "verdict": verdict, **dict(zip(COLUMNS, values, strict=True))}


def stopped(record: Record) -> str:
    """Return what stops a candidate: a rule, a status or a wrong answer; "" if its answer is right everywhere."""
    arm, violations = record.arm, [finding for finding in record.findings if finding.severity == "violation"]
    message = " ".join(arm.message.split()).rpartition(f"pass {Path(corpus.PASS).stem}: ")[2][:TEXT]
    if arm.status == "integrity":
        return f"violation, {', '.join(sorted({f'{f.layer} {f.rule}' for f in violations}))}: {message}"
    if arm.status != RAN:
        return f"{arm.status}: {message}"
    if not record.correct:
        guarded = arm.first_correct <= record.tolerance  # right but for the null guard
        return f"a null answer passes from t = {record.null_from}" if guarded else f"wrong: {arm.worst[:TEXT]}"
    if record.held_out_failures:
        sizes = f"{len(record.held_out_failures)} of {len(record.held_out_judged)} further sizes"
        return f"wrong at {sizes}; right at its own"
    return ""


if __name__ == "__main__":
    main()
