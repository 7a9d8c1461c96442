"""Programs with a known amount of extra work: is it found, is it called by its size, is a small one left alone?

    python benchmarks/planted.py --sessions 100                 5 %, 3 % and nothing at all, in turn
    python benchmarks/planted.py --sessions 100 --extra 0.05

Both arms are candidates whose pass replaces the whole graph by the same PyTorch calls; the second one then waits
for a share of the time since the call before ended. So the two differ by that share alone, and not by what a
replacement costs.
Each call adds sessions to reports/benchmarks/planted.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
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
from pytest_passbench.judge.arm import ArmSettings
from pytest_passbench.judge.session import Session
from pytest_passbench.judge.subject import CANDIDATE
from pytest_passbench.protocol import Plan
from pytest_passbench.settings import Settings

SHORTEST = 20.0  # microseconds: below, reading the clock takes a share of what is planted
PER_SANDBOX = 20
PASS = '''
import operator
import torch
from time import perf_counter_ns as now

device, inf, nan = torch.device, float("inf"), float("nan")

{pattern}

def replacement_args({names}):
    return ({names},)

{body}

last = 0

def kernel({names}):
    global last
    begin = now()
    results = body({names})
    end = now()
    began = last if begin - last < end - begin else begin
    wait = int((end - began) * {extra})
    end = now()
    while {extra} and now() - end < wait:
        pass
    last = now()
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


class Planted(Session):
    """Judges one candidate against another in eager's place, whose folder is ``plain``."""

    def __init__(self, plain: Path) -> None:
        super().__init__(
            Settings(pipeline="direct", policy="open", audit="off", sandbox="required"), os.urandom(32)
        )
        self.floor, self._plain = False, plain

    def _arm_settings(self, name: str, candidate: Path | None) -> ArmSettings:
        return super()._arm_settings(name, candidate or self._plain)

    def _plans(self, *arguments: Any) -> dict[str, Plan]:
        """Each sandbox has its own candidate at the same place."""
        plans = super()._plans(*arguments)
        return dict.fromkeys(plans, plans[CANDIDATE])


def _measure(store: Store, chosen: Sequence[Case], extra: float) -> None:
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        plain, planted = Path(name) / "plain", Path(name) / "planted"
        for case in chosen:
            _write_pass(plain, case, 0.0)
            _write_pass(planted, case, extra)
        candidate = Candidate.open(planted)
        with Planted(plain) as session:
            for case in chosen:
                begin = time.perf_counter()
                records = judged(session, case, candidate)
                store.add(session_of(case, records, time.perf_counter() - begin, extra=extra))


def _write_pass(folder: Path, case: Case, extra: float) -> None:
    """One pass per graph of the case's task, into the folder's directory for that task."""
    home = folder / case.task.id / "pass_dir"
    home.mkdir(parents=True, exist_ok=True)
    for key, source in case.task.graphs.items():
        text = textwrap.dedent(source).strip().replace("def forward(", "def body(", 1)
        names = text.partition("(")[2].partition(")")[0]
        pattern = text.replace("def body(", "def pattern(", 1)
        code = PASS.format(pattern=pattern, body=text, names=names, extra=extra)
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
