"""Seconds per subgraph by phase, beside a harness that starts an interpreter for each.

    python benchmarks/throughput.py --subgraphs 40
    python benchmarks/throughput.py --subgraphs 200 --candidate candidates/cpu-fused

Eager is judged against eager, or a candidate with its audit: then what no pass matches is counted apart. So is
building: it holds the pipeline's capture and the candidate's own compiling.
Writes reports/benchmarks/throughput.json and its picture.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from engine import NOBODY, REPORTS, Case, Twins, cases, costs, judged, machine, medians, session_of, spread, write

from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.run.ledger import open_candidates

INTERPRETERS = 5


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subgraphs", type=int, default=40, metavar="N", help="how many subgraphs")
    parser.add_argument("--candidate", metavar="DIR", help="judge this candidate instead of eager itself")
    args = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    sessions = list(_sessions(spread(cases(), args.subgraphs), args.candidate))
    summary = {"machine": machine(), **summarise(sessions), "interpreter_seconds": interpreter()}
    path = write("throughput-candidate" if args.candidate else "throughput", summary)
    from pictures import throughput_picture

    throughput_picture(
        summary["phases_median"], summary["seconds_median"], summary["interpreter_seconds"], path.with_suffix(".png")
    )
    print({key: value for key, value in summary.items() if key not in ("machine", "sessions")})


def _sessions(chosen: Sequence[Case], path: str | None) -> Iterator[dict[str, Any]]:
    session: Session
    if path is None:
        candidate, session = NOBODY, Twins(Settings(pipeline="direct", audit="off"))
    else:
        (candidate,), session = open_candidates([Path(path)]), Session(Settings(pipeline="direct"), os.urandom(32))
    with session:
        for case in chosen:
            begin = time.perf_counter()
            records = judged(session, case, candidate)
            yield session_of(case, records, time.perf_counter() - begin)


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return medians over subgraphs of their first measurement; ``whole``: with what was measured again."""
    good = [item for item in sessions if "ratio" in item]
    first = [item["default"] for item in good]
    phases = sorted({phase for item in first for phase in item["durations"]} - {"start"})
    by_phase = {phase: median(item["durations"].get(phase, 0.0) for item in first) for phase in phases}
    return {
        "subgraphs": len(sessions),
        "not_measured": len(sessions) - len(good),
        "harness_median_of_all": median(costs(item["default"])["harness"] for item in sessions),
        **medians(first),
        "whole": medians(good),
        "phases_median": dict(sorted(by_phase.items(), key=lambda pair: -pair[1])),
        "load_median": median(item["load"] for item in good),
        "sessions": list(sessions),
    }


def interpreter() -> float:
    """Return the seconds to start an interpreter and import torch: the median of ``INTERPRETERS`` tries."""
    taken = []
    for _ in range(INTERPRETERS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch, torch.fx"], check=True, env=dict(os.environ))
        taken.append(time.perf_counter() - begin)
    return median(taken)


if __name__ == "__main__":
    main()
