"""How long candidates take that keep the judge waiting, beside their time limit: `python benchmarks/bounds.py`.

    python benchmarks/bounds.py --limit 8
    python benchmarks/bounds.py --limit 8 --kind kernel --kind import

A row is a subgraph: what the candidate does, the seconds that it took (without starting sandboxes and waiting for the
cores), and its status. An honest subgraph follows each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.suite.taskfile import read_task
from shared import stalling_candidates
from shared.workspace import Workspace


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=float, default=8.0, metavar="SECONDS", help="the candidate's time")
    kinds = [*stalling_candidates.KINDS, "slow"]
    parser.add_argument("--kind", choices=kinds, action="append", help="may be repeated (default: all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Workspace(Path(folder))
        candidate = Candidate.open(stalling_candidates.write(bench, args.kind or kinds))
        settings = Settings(pipeline="direct", policy="open", timeout=args.limit)
        print(f"{'candidate':18} {'limit':>6} {'took':>6}  status")
        with Session(settings, b"a secret of the benchmark") as session:
            for path in sorted(bench.tasks.glob("*.yaml")):
                task, began = read_task(path), time.monotonic()
                *_, record = session.judge(task, candidate)
                took = time.monotonic() - began - sum(record.durations.get(phase, 0.0) for phase in ("start", "wait"))
                status = f"{record.arm.status} {record.arm.phase}".strip()
                speed = record.arm.speed
                status += f", {speed.ratio:.2g}x by {len(speed.pairs)} pairs" if speed is not None else ""
                print(f"{task.id[3:].lstrip('-'):18} {args.limit:6.1f} {took:6.1f}  {status}", flush=True)


if __name__ == "__main__":
    main()
