"""Candidates with a known amount of extra work: is it found, is it called by its size, is a small one left alone?

    python benchmarks/planted.py --sessions 100                 5 %, 3 % and nothing at all, in turn
    python benchmarks/planted.py --sessions 100 --extra 0.05

The candidate's pass replaces the whole graph by the same PyTorch calls, and then waits for the share of the time
that they took, less what calling the replacement costs itself. That cost is known from the sessions with nothing
planted, which are stored beside the others. Each call adds sessions to reports/benchmarks/planted.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from engine import Case, Store, cases, judged, machine, session_of, spread, write

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.judge.session import Session
from pytest_passbench.settings import Settings

SHORTEST = 30.0  # microseconds: below, calling the replacement costs more than what is planted
PER_SANDBOX = 20
PASS = '''
import torch
from time import perf_counter_ns as now

device, inf, nan = torch.device, float("inf"), float("nan")

{pattern}

def replacement_args({names}):
    return ({names},)

{body}

def kernel({names}):
    begin = now()
    results = body({names})
    end = now()
    end += int((end - begin) * {extra}) - {overhead} if {extra} else 0
    while now() < end:
        pass
    return results

def replacement_func():
    return kernel
'''


def main() -> None:
    """Add sessions, then summarise all there are."""
    args = _arguments()
    store, chosen = Store("planted"), spread(cases(shortest=SHORTEST), args.cases)
    amounts = [args.extra] if args.extra is not None else [0.0, 0.05, 0.03]
    queue = store.next(chosen)
    for start in range(0, args.sessions, PER_SANDBOX):
        extra = amounts[start // PER_SANDBOX % len(amounts)]
        _measure(store, [next(queue) for _ in range(min(PER_SANDBOX, args.sessions - start))], extra)
    sessions = store.sessions()
    summary = {"machine": machine(), **summarise(sessions)}
    path = write("planted", summary)
    from pictures import planted_picture

    planted_picture(sessions, path.with_suffix(".png"))
    print({key: value for key, value in summary.items() if key != "machine"})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=60, metavar="N", help="sessions to add")
    parser.add_argument("--cases", type=int, default=40, metavar="N", help="subgraphs to spread them over")
    parser.add_argument("--extra", type=float, metavar="SHARE", help="what to plant (default: 0, 0.05 and 0.03)")
    return parser.parse_args()


def overhead_ns(store: Store) -> int:
    """What calling the replacement costs, from the sessions with nothing planted; a guess where there are none."""
    costs = [1000 * (item["other_us"] - item["eager_us"])
             for item in store.sessions() if item["extra"] == 0 and "ratio" in item and item["eager_us"] < 500]
    return max(0, round(median(costs))) if costs else 600


def _measure(store: Store, chosen: Sequence[Case], extra: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    overhead = overhead_ns(store)
    try:
        for case in chosen:
            _write_pass(folder, case, extra, overhead)
        candidate = Candidate.open(folder)
        with Session(Settings(pipeline="direct", policy="open", audit="off"), os.urandom(32)) as session:
            session.floor = False
            for case in chosen:
                begin = time.perf_counter()
                record = judged(session, case, candidate)
                store.add(session_of(case, record, time.perf_counter() - begin, extra=extra, overhead_ns=overhead))
    finally:
        shutil.rmtree(folder)


def _write_pass(folder: Path, case: Case, extra: float, overhead: int) -> None:
    """One pass per graph of the case's task, into the folder's directory for that task."""
    home = folder / case.task.id / "pass_dir"
    home.mkdir(parents=True, exist_ok=True)
    for key, source in case.task.graphs.items():
        text = textwrap.dedent(source).strip().replace("def forward(", "def body(", 1)
        names = text.partition("(")[2].partition(")")[0]
        pattern = text.replace("def body(", "def pattern(", 1)
        code = PASS.format(pattern=pattern, body=text, names=names, extra=extra, overhead=overhead)
        (home / f"{key}.py").write_text(code)
    (home / "sorted_output_pass_rule_names.json").write_text(json.dumps(list(case.task.graphs)))


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Per amount: what was measured, and which verdicts."""
    found = {}
    for extra in sorted({item["extra"] for item in sessions}):
        items = [item for item in sessions if item["extra"] == extra]
        good = [item for item in items if "ratio" in item]
        verdicts = Counter(item["verdict"] for item in good)
        found[f"{extra:g}"] = {
            "sessions": len(items),
            "lost": dict(Counter(f"{item['status']}: {item['note'][:80]}" for item in items if "ratio" not in item)),
            "cases": len({item["case"] for item in good}),
            "measured_extra_median": median(1 / item["ratio"] - 1 for item in good) if good else None,
            "verdicts": {name: count / len(good) for name, count in verdicts.items()},
            "pairs_median": median(item["pairs"] for item in good) if good else None,
            "load_median": median(item["load"] for item in good) if good else None,
        }
    return {"planted": found}


if __name__ == "__main__":
    main()
