"""What each audit layer costs, and what it stops: `python benchmarks/audit_cost.py [--table] [--entries N]`.

Without `--table`: seconds of the phase "audit" per subgraph, and its share of all seconds of judging, with all
layers, each one alone and each one left out (some share a fork and its blocks), on honest candidates of the corpus.
With `--table`: every exploit with all layers and with the source layer off, as Markdown: status, layer that found it,
speed beside its twin's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import corpus

from pytest_passbench.judge.audits.layers import LAYERS

Records = dict[str, list[Any]]


def judged(entries: list[corpus.Entry], **settings: Any) -> Records:
    """The entries' records, by name."""
    with tempfile.TemporaryDirectory() as folder:
        return corpus.judge(corpus.combine(entries, Path(folder) / "corpus"), **settings)


def cost(entries: list[corpus.Entry]) -> None:
    """Print the cost table."""
    rows = [("none", {"audit": "off"}), ("all (standard)", {}), ("all (paranoid)", {"audit": "paranoid"})]
    rows += [(f"{name} alone", {"audit_skip": tuple(set(LAYERS) - {name})}) for name in LAYERS]
    rows += [(f"without {name}", {"audit_skip": (name,)}) for name in LAYERS]
    print("| layers | audit, ms per subgraph (median) | share of judging | subgraphs |\n|---|---:|---:|---:|")
    for name, settings in rows:
        records = [record for group in judged(entries, **settings).values() for record in group]
        spent = [record.durations.get("audit", 0.0) for record in records]
        total = sum(seconds for record in records for phase, seconds in record.durations.items() if phase != "start")
        print(f"| {name} | {median(spent) * 1e3:.1f} | {sum(spent) / total:.1%} | {len(records)} |", flush=True)


def table(entries: list[corpus.Entry]) -> None:
    """Print what became of every exploit."""
    names = {entry.twin for entry in entries if entry.twin}
    twins = [entry for entry in corpus.entries(corpus.HONEST) if entry.name in names]
    runs = [judged([*entries, *twins], **settings) for settings in ({}, {"audit_skip": ("source",)})]
    print("| exploit | line | expected of | all layers | without the source layer |\n|---|---:|---|---|---|")
    good = [0, 0]
    for entry in entries:
        cells = []
        for index, records in enumerate(runs):
            said, fine = outcome(entry, records)
            good[index] += fine
            cells.append(said)
        print(f"| {entry.name} | {entry.line} | {entry.layer} | {' | '.join(cells)} |")
    print(f"\nstopped: {good[0]} of {len(entries)}; without the source layer {good[1]} of {len(entries)}")


def outcome(entry: corpus.Entry, records: Records) -> tuple[str, bool]:
    """What became of an exploit, and whether it gained nothing."""
    record, twin = records[entry.name][-1], records.get(entry.twin, [None])[-1]
    if corpus.outcome(record) == "rejected":
        layer = next((found.layer for found in record.findings if found.severity == "violation"), "")
        return f"rejected: {record.arm.status}{f' ({layer})' if layer else ''}", True
    if record.arm.speed is None or twin is None or twin.arm.speed is None:
        return "passes, not measured", True
    speed, other = record.arm.speed, twin.arm.speed
    fine = corpus.gain(record, twin) < corpus.NOISE
    said = f"{speed.ratio / other.ratio:.2f} of its twin, {speed.ratio:.2f} of eager"
    return f"{'neutralised' if fine else 'GAINS'}: {said}", fine


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="the exploits, with and without the source layer")
    parser.add_argument("--entries", type=int, default=12, help="how many candidates (default 12; 0 for all)")
    args = parser.parse_args()
    chosen = corpus.entries(corpus.EXPLOITS if args.table else corpus.HONEST)
    chosen = [entry for entry in chosen if not entry.gpu]
    (table if args.table else cost)(chosen[: args.entries] if args.entries else chosen)


if __name__ == "__main__":
    main()
