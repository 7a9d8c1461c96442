"""Seconds per subgraph by phase, beside a harness that starts an interpreter for each.

    python benchmarks/throughput.py --subgraphs 40

Eager is judged against eager. Building is told apart: in other runs it holds the pipeline's capture and compiling.
Writes reports/benchmarks/throughput.json and its picture.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from engine import REPORTS, Twins, cases, machine, medians, session_of, spread, write

from pytest_passbench.settings import Settings

INTERPRETERS = 5


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subgraphs", type=int, default=40, metavar="N", help="how many subgraphs")
    args = parser.parse_args()
    sessions = []
    REPORTS.mkdir(parents=True, exist_ok=True)
    with Twins(Settings(pipeline="direct", audit="off")) as twins:
        for case in spread(cases(), args.subgraphs):
            begin = time.perf_counter()
            records = twins.against(case)
            sessions.append(session_of(case, records, time.perf_counter() - begin))
    summary = {"machine": machine(), **summarise(sessions), "interpreter_seconds": interpreter()}
    path = write("throughput", summary)
    from pictures import throughput_picture

    throughput_picture(
        summary["phases_median"], summary["seconds_median"], summary["interpreter_seconds"], path.with_suffix(".png")
    )
    print({key: value for key, value in summary.items() if key not in ("machine", "sessions")})


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over subgraphs, of their default measurement; ``whole``: with what was measured again."""
    good = [item for item in sessions if "ratio" in item]
    first = [item["default"] for item in good]
    phases = sorted({phase for item in first for phase in item["durations"]} - {"start"})
    by_phase = {phase: median(item["durations"].get(phase, 0.0) for item in first) for phase in phases}
    return {
        "subgraphs": len(sessions),
        "lost": len(sessions) - len(good),
        **medians(first),
        "whole": medians(good),
        "phases_median": dict(sorted(by_phase.items(), key=lambda pair: -pair[1])),
        "load_median": median(item["load"] for item in good),
        "sessions": list(sessions),
    }


def interpreter() -> float:
    """Seconds to start an interpreter and import torch, before anything is measured: the median of a few."""
    taken = []
    for _ in range(INTERPRETERS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch, torch.fx"], check=True, env=dict(os.environ))
        taken.append(time.perf_counter() - begin)
    return median(taken)


if __name__ == "__main__":
    main()
