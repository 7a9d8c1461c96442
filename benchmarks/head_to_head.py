"""Two candidates in the same rounds: are copies SAME, are 3 % detected, is the interval narrower than two runs'?

    python benchmarks/head_to_head.py --sessions 40      40 sessions of each: copies, and 3 % of extra work
    python benchmarks/head_to_head.py --sessions 0       only summarise

A session of a subgraph is a measurement by the project's own judge, with everything that a run does: candidate and
reference head to head. For copies each of them is also measured in a run of its own, as one would compare two files.
Both replace the whole graph by the same PyTorch operators and a kernel that counts (see planted.py); the candidate's
counts longer for the share that is planted. The judge itself measures beforehand how long counting takes. The runs of
one session follow each other directly, so this is the least that two runs differ.

Eager is measured against eager as in any run, so the threshold of verdicts is the machine's. ``--quiet-floor`` leaves
that out: then it is 2 %.
Each call adds sessions to reports/benchmarks/head_to_head.jsonl.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from engine import Case, Store, cases, judged, machine, session_of, spread, steal, write
from planted import SHORTEST, _seconds, _seconds_of_a_turn, _write_pass

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.names import TWIN
from pytest_passbench.judge.case_judge import CaseJudge
from pytest_passbench.judge.session import Session
from pytest_passbench.score.interval import quotient

PLANTED = (0.0, 0.03)
PER_SANDBOX = 20


def main() -> None:
    """Add sessions, then summarise all that are stored."""
    args = _arguments()
    of_tasks = {case.task.id: case for case in cases(shortest=SHORTEST, longest=args.longest)}
    store, chosen = Store(args.name), spread(list(of_tasks.values()), args.cases)  # a task has one folder of passes
    queue, deadline = store.next(chosen), time.monotonic() + args.seconds
    left = dict.fromkeys(PLANTED if args.planted is None else [args.planted], args.sessions)
    while any(left.values()) and time.monotonic() < deadline:
        for extra in left:
            count = min(left[extra], PER_SANDBOX)
            left[extra] -= count
            _measure(store, [next(queue) for _ in range(count)], extra, args, deadline)
    sessions = store.sessions()
    summary = {"machine": machine(), **summarise(sessions)}
    write(args.name, summary)
    print(*(f"{key}: {value}" for key, value in summary.items() if key != "machine"), sep="\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=40, metavar="N", help="sessions to add, of each kind")
    parser.add_argument("--planted", type=float, choices=PLANTED, help="only this share (default: both)")
    parser.add_argument("--cases", type=int, default=40, metavar="N", help="subgraphs to spread them over")
    parser.add_argument(
        "--longest", type=float, default=2_000.0, metavar="US", help="of eager's calls (microseconds)"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="begin no session after this")
    parser.add_argument("--quiet-floor", action="store_true", help="no eager against eager: the threshold is 2 %%")
    parser.add_argument("--name", default="head_to_head", help="store under another name")
    return parser.parse_args()


class WithoutTwin(CaseJudge):
    """A judge that does not measure the machine's noise, and still measures again what noise left open."""

    def orders(self, *about: Any) -> dict[str, Any]:
        orders = super().orders(*about)
        orders.pop(TWIN, None)
        return orders


class Judging(Session):
    """A session as in any run, or one that does not measure the machine's noise."""

    def __init__(self, against: Path | None, quiet_floor: bool) -> None:
        settings = Settings(pipeline="direct", policy="open", audit="off", sandbox="required", against=against)
        super().__init__(settings, os.urandom(32))
        if quiet_floor:
            self.case_judge = WithoutTwin(self.equipment)


def _measure(store: Store, chosen: Sequence[Case], extra: float, args: argparse.Namespace, deadline: float) -> None:
    with tempfile.TemporaryDirectory(prefix="head-to-head-") as name, ExitStack() as stack:
        folders = {kind: Path(name) / kind for kind in ("plain", "heavy", "planted")}
        for case in chosen:
            _write_pass(folders["plain"], case, 0)
            _write_pass(folders["heavy"], case, _turns(case))
        both = stack.enter_context(Judging(folders["plain"], args.quiet_floor))
        one, other = (stack.enter_context(Judging(None, args.quiet_floor)) for _ in range(2))
        for judge in (both, one, other):
            judge.expected = len(chosen)  # eager against eager is for runs of several subgraphs
        turns = {
            case.name: _calibrated(both, case, folders["heavy"], extra, deadline) if extra else 0 for case in chosen
        }
        for case in chosen:
            _write_pass(folders["planted"], case, turns[case.name])
        reference, candidate = Candidate.open(folders["plain"]), Candidate.open(folders["planted"])
        for case in chosen:
            if time.monotonic() > deadline:
                break
            begin, stolen = time.perf_counter(), steal()
            together = judged(both, case, candidate)
            apart = None if extra else _quotient(judged(one, case, candidate)[-1], judged(other, case, reference)[-1])
            more = {"extra": extra, "quiet_floor": args.quiet_floor, "stolen": steal() - stolen, "apart": apart}
            found = session_of(case, together, time.perf_counter() - begin, **more)
            store.add({**found, "against": _against(together[-1]), "delta": both.noise()["delta"]})


def _turns(case: Case) -> int:
    """Return how many turns of the kernel take about as long as the graph, measured in this process."""
    return max(1000, round(_seconds(case) / _seconds_of_a_turn()))


def _calibrated(both: Session, case: Case, heavy: Path, extra: float, deadline: float) -> int:
    """Return the turns that take a share ``extra`` of the reference's time, by a judged measurement of more turns."""
    if time.monotonic() > deadline:
        return 0
    speed = judged(both, case, Candidate.open(heavy))[0].head_to_head
    assert speed is not None, f"{case.name} was not measured"
    return round(_turns_in(heavy, case) * extra / (1 / speed.ratio - 1))


def _turns_in(folder: Path, case: Case) -> int:
    text = (folder / case.task.id / "pass_dir" / f"{case.subgraph.graph}.py").read_text()
    return int(text.partition("lib.spin(torch.zeros(1), ")[2].partition(")")[0])


def _against(record: Record) -> dict[str, Any] | None:
    speed = record.head_to_head
    return None if speed is None else {**_ends(speed), "verdict": speed.verdict, "pairs": len(speed.pairs)}


def _quotient(candidate: Record, reference: Record) -> dict[str, Any] | None:
    now, then = candidate.arm.speed, reference.arm.speed
    return None if now is None or then is None else _ends(quotient(now, then))


def _ends(interval: Any) -> dict[str, float]:
    return {name: getattr(interval, name) for name in ("ratio", "low", "high")}


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, per planted amount, verdicts, coverage of the truth, and half widths, beside those of two runs."""
    return {f"{extra:g}": _of([one for one in sessions if one["extra"] == extra], extra) for extra in PLANTED}


def _of(sessions: Sequence[dict[str, Any]], extra: float) -> dict[str, Any]:
    good = [one for one in sessions if one["against"]]
    if not good:
        return {"sessions": len(sessions)}
    verdicts, truth = Counter(one["against"]["verdict"] for one in good), 1 / (1 + extra)
    return {
        "sessions": len(sessions),
        "measured": len(good),
        "cases": len({one["case"] for one in good}),
        "verdicts": {name: verdicts[name] for name in ("FASTER", "SLOWER", "SAME", "UNRESOLVED")},
        "interval_excludes_1": sum(not one["against"]["low"] <= 1 <= one["against"]["high"] for one in good),
        "coverage": sum(one["against"]["low"] <= truth <= one["against"]["high"] for one in good) / len(good),
        "ratio_median": median(one["against"]["ratio"] for one in good),
        "half_width_median": median(_width(one["against"]) for one in good),
        "spread": _rms(math.log(one["against"]["ratio"] / truth) for one in good),
        "pairs_median": median(one["against"]["pairs"] for one in good),
        "delta_median": median(one["delta"] for one in good),
        "load_median": median(one["load"] for one in good),
        "seconds_median": median(one["seconds"] for one in good),
        **_two_runs([one for one in good if one["apart"]]),
    }


def _two_runs(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of copies that are compared as two results files are. Their true ratio is 1."""
    if not sessions:
        return {}
    apart = [one["apart"] for one in sessions]
    return {
        "two_runs": {
            "sessions": len(sessions),
            "half_width_median": median(map(_width, apart)),
            "head_to_head_is_narrower_in": sum(_width(one["against"]) < _width(one["apart"]) for one in sessions),
            "coverage": sum(ends["low"] <= 1 <= ends["high"] for ends in apart) / len(apart),
            "spread": _rms(math.log(ends["ratio"]) for ends in apart),
        }
    }


def _width(ends: dict[str, float]) -> float:
    return math.log(ends["high"] / ends["low"]) / 2


def _rms(values: Any) -> float:
    known = list(values)
    return math.sqrt(math.fsum(value * value for value in known) / len(known))


if __name__ == "__main__":
    main()
