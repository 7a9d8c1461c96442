"""The long tail: TorchInductor's defaults against eager, by the judge, on one subgraph of each task.

    python benchmarks/longtail.py --minutes 30    measure what is not measured yet (a quiet machine)
    python benchmarks/longtail.py --write         write docs/suite-longtail.json from what is measured

The subgraph is of median size. Its dtype changes from one task to the next. It is judged as with
``--passbench-baseline=inductor``: a row has the speed-up with its interval, and the machine's load at its time. A
measurement is a line of reports/benchmarks/longtail.jsonl, so a run can be stopped, and goes on where it stopped.
Subgraphs that TorchInductor fails on, or whose speed is not measured, are printed by --write, with the reason.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from engine import Case, Store, judged, machine

from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.run.ledger import open_candidates
from pytest_passbench.suite.find import discover, edition_of, installed_tasks, select
from pytest_passbench.suite.summary import LONGTAIL_FILE, SpeedupRow, longtail_counts
from shared.longtail_rows import representatives, save_longtail

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "inductor"
BUILD_SECONDS = 300.0
"""The time limit of a build. A cold compile takes long, above all beside other work."""
NO_PASS = ROOT / "candidates" / "no-match"
"""The candidate, which matches nothing: the baseline is measured beside it."""


def main() -> None:
    """Measure, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="begin no subgraph after these")
    parser.add_argument("--write", action="store_true", help="write docs/suite-longtail.json, and measure nothing")
    args = parser.parse_args()
    store, chosen = Store("longtail"), dict(_cases())
    if args.write:
        write(store, chosen)
        return
    done = {session["case"] for session in store.sessions()}
    left = [case for name, case in chosen.items() if name not in done]
    end = time.monotonic() + 60 * args.minutes
    settings = Settings(pipeline="direct", audit="off", baselines=(BASELINE,), timeout=BUILD_SECONDS)
    candidate = open_candidates((NO_PASS,))[0]
    with Session(settings, os.urandom(32)) as session:
        for number, case in enumerate(left, 1):
            if time.monotonic() > end:
                break
            load = os.getloadavg()[0]
            record = judged(session, case, candidate)[-1]
            store.add({"case": case.name, "load": load, **_measured(record)})
            print(f"[{number} of {len(left)}] {store.sessions()[-1]}", flush=True)


def _cases() -> Iterator[tuple[str, Case]]:
    tasks = [ref.load() for ref in select(discover(installed_tasks()), "full")]
    for task, subgraph in representatives(tasks):
        case = Case(task, subgraph, float(subgraph.meta.get("eager_us", 0.0)))
        yield case.name, case


def _measured(record: Record) -> dict[str, Any]:
    arm = record.baselines.get(BASELINE)
    if arm is None or arm.speed is None:
        failed = record.arm if arm is None else arm
        return {"failed": f"{failed.status}: {failed.message or failed.speed_note}"[:300]}
    speed = arm.speed
    return {"eager_us": speed.eager_us, "speedup": speed.ratio, "low": speed.low, "high": speed.high}


def write(store: Store, chosen: dict[str, Case]) -> None:
    """Write the rows of the subgraphs that the suite has now, and print the counts."""
    rows, failed = [], 0
    for session in store.sessions():
        if session["case"] not in chosen:
            continue
        case = chosen[session["case"]]
        if "failed" in session:
            failed += 1
            print(f"{case.name}: {session['failed']}")
            continue
        numbers = (round(session[name], 4) for name in ("eager_us", "speedup", "low", "high", "load"))
        rows.append(SpeedupRow(case.task.id, case.subgraph.id, case.subgraph.dtype, *numbers))
    about = {
        "edition": edition_of(installed_tasks() / "one"),
        "machine": machine(),
        "load_median": median(row.load for row in rows) if rows else None,
        "failed": failed,
        "not_measured_yet": len(chosen) - len(rows) - failed,
    }
    save_longtail(sorted(rows, key=lambda row: row.task), ROOT / LONGTAIL_FILE, **about)
    print({**longtail_counts(rows), **{name: value for name, value in about.items() if name != "machine"}})


if __name__ == "__main__":
    main()
