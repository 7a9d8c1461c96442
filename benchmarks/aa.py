"""Eager against eager on real subgraphs: does the interval cover 1 as often as it says, and how wide is it?

    python benchmarks/aa.py --sessions 200            quiet machine, one thread
    python benchmarks/aa.py --sessions 200 --busy     one core kept busy by another process
    python benchmarks/aa.py --sessions 200 --threads 2
    python benchmarks/aa.py --sessions 100 --swap     two different programs, with the arms exchanged, and back again

Each call adds sessions to reports/benchmarks/aa-<variant>.jsonl and writes the summary and its picture anew.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from statistics import median
from typing import Any

from engine import Case, Store, Twins, busy, cases, machine, medians, session_of, spread, steal, write

from pytest_passbench.core.settings import Settings

PER_SANDBOX = 40  # sessions until new sandboxes are started, whose memory is laid out anew
THREE = ("candidate", "eager", "candidate")  # the arm that has the longer program
EXTRA = "    extra = torch.exp(in_0)\n"


def main() -> None:
    """Add sessions, then summarise all that are stored."""
    args = _arguments()
    variant = args.name or "-".join(
        ["aa", *(["busy"] if args.busy else []), *(["swap"] if args.swap else []), *_threads(args.threads)]
    )
    store, chosen = Store(variant), spread(cases(), args.cases)
    with busy(1) if args.busy else nullcontext():
        _measure(store, chosen, args)
    sessions = store.sessions()
    summary = {"machine": machine(), **(swapped(sessions) if args.swap else summarise(sessions))}
    path = write(variant, summary)
    if not args.swap:
        from pictures import aa_picture

        aa_picture(sessions, path.with_suffix(".png"), variant)
    print({key: value for key, value in summary.items() if key not in ("machine", "by_case")})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100, metavar="N", help="sessions to add (0: only summarise)")
    parser.add_argument("--cases", type=int, default=48, metavar="N", help="subgraphs to spread them over")
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument("--swap", action="store_true", help="another program in one arm, and exchanged")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of every arm")
    parser.add_argument("--name", help="store under another name than the variant's")
    return parser.parse_args()


def _threads(count: int) -> list[str]:
    return [f"threads{count}"] if count > 1 else []


def _measure(store: Store, chosen: Sequence[Case], args: argparse.Namespace) -> None:
    queue, left = store.next(chosen), args.sessions
    while left > 0:
        count = min(left, PER_SANDBOX)
        if args.swap:
            _swap_sessions(store, [next(queue) for _ in range(count)])
        else:
            with Twins(Settings(pipeline="direct", audit="off", threads=args.threads)) as twins:
                for _ in range(count):
                    case = next(queue)
                    begin, stolen = time.perf_counter(), steal()
                    records = twins.against(case)
                    store.add(session_of(case, records, time.perf_counter() - begin, stolen=steal() - stolen))
        left -= count


def _swap_sessions(store: Store, chosen: Sequence[Case]) -> None:
    """Measure each case three times in a row: with the longer program as the candidate, as eager, and as candidate
    again. A difference between the first and the third session does not come from the exchange of the arms."""
    with ExitStack() as stack:
        ways = {
            longer: stack.enter_context(Twins(Settings(pipeline="direct", audit="off"), partial(_longer_at, longer)))
            for longer in set(THREE)
        }
        for case in chosen:
            for longer in THREE:
                begin = time.perf_counter()
                records = ways[longer].against(case)
                store.add(session_of(case, records, time.perf_counter() - begin, longer=longer))


def _longer_at(which: str, arm: str, source: str) -> str:
    """Return the source; in the arm ``which``, with one more operator, whose result nothing uses."""
    if arm != which:
        return source
    head, colon, body = source.partition(":\n")
    return head + colon + EXTRA + body


def summarise(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage, widths, verdicts and costs of a true ratio of 1; ``default``: by first measurements alone."""
    good = [item for item in sessions if "ratio" in item]
    if not good:
        lost = Counter(f"{item['status']}: {item['note'][:200]}" for item in sessions)
        raise SystemExit(f"no session was measured: {dict(lost)}")
    first = [item["default"] for item in good]
    return {
        "sessions": len(sessions),
        "lost": len(sessions) - len(good),
        "cases": len({item["case"] for item in good}),
        "eager_us": [min(item["eager_us"] for item in good), max(item["eager_us"] for item in good)],
        **_figures(good),
        **medians(good),
        "load_median": median(item["load"] for item in good),
        "stolen_seconds": sum(item.get("stolen", 0.0) for item in good),
        "default": {**_figures(first), **medians(first)},
        "by_case": _by_case(good),
    }


def _figures(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    errors = sorted(abs(item["ratio"] - 1) for item in measured)
    verdicts = Counter(item["verdict"] for item in measured)
    return {
        "coverage": sum(item["low"] <= 1 <= item["high"] for item in measured) / len(measured),
        "error_quantiles": {str(q): _quantile(errors, q) for q in (0.5, 0.9, 0.95, 0.99, 1.0)},
        "verdicts": {name: verdicts[name] / len(measured) for name in ("FASTER", "SLOWER", "SAME", "UNRESOLVED")},
        "half_width_median": median(math.log(item["high"] / item["low"]) / 2 for item in measured),
    }


def _by_case(good: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {}
    for item in good:
        found.setdefault(item["case"], []).append(item)
    return {
        name: {
            "sessions": len(items),
            "eager_us": median(item["eager_us"] for item in items),
            "coverage": sum(item["low"] <= 1 <= item["high"] for item in items) / len(items),
            "error_median": median(abs(item["ratio"] - 1) for item in items),
        }
        for name, items in found.items()
    }


def swapped(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how often intervals overlap. ``exchanged`` compares the inverse of an exchanged session with the one
    before and the one after it; ``repeated`` compares these two. A gap is a difference of log ratios."""
    threes = _threes(sessions)
    if not threes:
        raise SystemExit("no three sessions of one subgraph were measured")
    couples = {
        "exchanged": [(one, _inverse(middle)) for before, middle, after in threes for one in (before, after)],
        "repeated": [(before, after) for before, _middle, after in threes],
    }
    return {
        "threes": len(threes),
        "ratio_median": median(before["ratio"] for before, _middle, _after in threes),
        **{name: _agreement(found) for name, found in couples.items()},
    }


def _threes(sessions: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    """Return the complete threes. A run that was stopped in between leaves an incomplete one, which is left out."""
    found = [sessions[start : start + 3] for start in range(len(sessions) - 2)]
    return [three for three in found if all("ratio" in one for one in three) and _belong(three)]


def _belong(three: Sequence[dict[str, Any]]) -> bool:
    return tuple(one["longer"] for one in three) == THREE and len({one["case"] for one in three}) == 1


def _inverse(item: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": 1 / item["ratio"], "low": 1 / item["high"], "high": 1 / item["low"]}


def _agreement(couples: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    gaps = sorted(abs(math.log(one["ratio"] / other["ratio"])) for one, other in couples)
    overlapping = sum(one["low"] <= other["high"] and other["low"] <= one["high"] for one, other in couples)
    return {
        "couples": len(couples),
        "overlapping": overlapping / len(couples),
        "gap_quantiles": {str(q): _quantile(gaps, q) for q in (0.5, 0.9, 0.95)},
    }


def _quantile(values: Sequence[float], q: float) -> float:
    return values[min(len(values) - 1, math.ceil(q * len(values)) - 1)]


if __name__ == "__main__":
    main()
