"""Programs with a known amount of extra work: is it detected, and is its size measured right?

    python benchmarks/planted.py --sessions 100                 5 %, 3 % and nothing at all, in turn
    python benchmarks/planted.py --sessions 100 --extra 0.05

Both arms are candidates whose pass replaces the whole graph by the same PyTorch operators and one kernel that counts.
The second one's counts for a share of the time that the graph took in this process. So the two differ by about that
share alone, and not by what a replacement costs.
Each call adds sessions to reports/benchmarks/planted.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import textwrap
import time
import timeit
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from engine import Case, Store, cases, judged, machine, session_of, spread, write

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.case_judge import CaseJudge
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.session import Session
from pytest_passbench.kernels import cpp
from pytest_passbench.protocol import Order
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs

SHORTEST = 20.0  # microseconds of eager; in shorter ones a launch takes a share of the planted time
PER_SANDBOX = 20
PASS = '''
import operator
import torch
from pytest_passbench.kernels import cpp

device, inf, nan = torch.device, float("inf"), float("nan")
lib = cpp.load("""
#include <cstdint>
extern "C" void spin(float* x, int64_t n) {{
  float a = x[0];
  for (int64_t i = 0; i < n; i++) a = a * 0.999f + 1.0f;
  x[0] = a;
}}""")

{pattern}

def replacement_args({names}):
    return ({names},)

{body}

def kernel({names}):
    results = body({names})
    lib.spin(torch.zeros(1), {turns})
    return results

def replacement_func():
    return kernel
'''
SPIN = PASS.partition('cpp.load("""')[2].partition('"""')[0].replace("{{", "{").replace("}}", "}")


def main() -> None:
    """Add sessions, then summarise all that are stored."""
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


class PlantedJudge(CaseJudge):
    """A judge that gives eager's arm the program of the candidate ``plain``, whose passes ``others`` read."""

    def __init__(self, equipment: Equipment, plain: Candidate, others: CandidateReaders) -> None:
        super().__init__(equipment)
        self._plain, self._others = plain, others

    def planners(self, case: Any) -> dict[str, Planner]:
        passes = self._plain.passes_for(case.task.id)
        assert passes is not None
        return {**super().planners(case), EAGER: self._others.planner(self._plain, passes)}

    def orders(self, case: Any, arms: Any, passes: Any) -> dict[str, Order]:
        orders = super().orders(case, arms, passes)
        own = self._plain.passes_for(case.task.id)
        assert own is not None
        plain = self._others.passes(self._plain, own)
        return {EAGER: replace(orders[CANDIDATE], passes=plain), CANDIDATE: orders[CANDIDATE]}  # the reference first


class Planted(Session):
    """A session that judges one candidate against another in eager's place."""

    def __init__(self, plain: Candidate) -> None:
        super().__init__(Settings(pipeline="direct", policy="open", audit="off", sandbox="required"), os.urandom(32))
        builders = Builder(self.equipment.walls, None), TritonBuilder(self.equipment.walls, None)
        self._others = CandidateReaders("open", *builders, self.equipment.sandboxes.start_reading)
        self.case_judge = PlantedJudge(self.equipment, plain, self._others)

    def close(self) -> None:
        self._others.close()
        super().close()


def _measure(store: Store, chosen: Sequence[Case], extra: float) -> None:
    turn = _seconds_of_a_turn()
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        plain, planted = Path(name) / "plain", Path(name) / "planted"
        for case in chosen:
            _write_pass(plain, case, 0)
            _write_pass(planted, case, round(extra * _seconds(case) / turn))
        candidate = Candidate.open(planted)
        with Planted(Candidate.open(plain)) as session:
            for case in chosen:
                begin = time.perf_counter()
                records = judged(session, case, candidate)
                store.add(session_of(case, records, time.perf_counter() - begin, extra=extra))


def _seconds_of_a_turn() -> float:
    """Return the seconds of one turn of the kernel's loop."""
    room, count = torch.zeros(1), 200_000
    library = cpp.load(SPIN).build()
    library.spin(room, count)
    return min(timeit.repeat(lambda: library.spin(room, count), number=1, repeat=50)) / count


def _seconds(case: Case) -> float:
    """Return the seconds of a call of the case's graph in this process."""
    graph = build_graph(case.task.graphs[case.subgraph.graph], case.name)
    inputs = example_inputs(case.subgraph)
    with torch.no_grad():
        graph(*inputs)
        return median(timeit.repeat(lambda: graph(*inputs), number=10, repeat=20)) / 10


def _write_pass(folder: Path, case: Case, turns: int) -> None:
    """Write a pass for the case's graph into the directory of its task in the folder."""
    home = folder / case.task.id / "pass_dir"
    home.mkdir(parents=True, exist_ok=True)
    key = case.subgraph.graph
    text = textwrap.dedent(case.task.graphs[key]).strip().replace("def forward(", "def body(", 1)
    names = text.partition("(")[2].partition(")")[0]
    pattern = text.replace("def body(", "def pattern(", 1)
    (home / f"{key}.py").write_text(PASS.format(pattern=pattern, body=text, names=names, turns=turns))
    (home / "sorted_output_pass_rule_names.json").write_text(json.dumps([key]))


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what was measured, and the shares of the verdicts, for each amount."""
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
