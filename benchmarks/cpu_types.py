"""One candidate judged on two types of CPU: how far the verdicts agree.

    python benchmarks/cpu_types.py A/results.md B/results.md

Each file is a run's report in Markdown, as reports/committed/ has them. Prints how many subgraphs are right on
both, on one, on neither; the verdicts on speed of those that are right on both, crossed; and how far their
speed-ups differ.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

VERDICTS = ("faster", "same", "unresolved", "slower")
ROW = re.compile(r"\| (\S+) \| (\S+) \| [\d.-]+ \| [\d.-]+ \| (\S+)(?: \[([\d.]+), ([\d.]+)\])? \| (\w+) \|")


@dataclass(frozen=True)
class Row:
    """A subgraph's row. ``low`` and ``high`` are the 95 % interval of its speed-up; nan if it was not measured."""

    ratio: float
    low: float
    high: float
    verdict: str

    @property
    def right(self) -> bool:
        """True if the answer is correct. Only then is its verdict one on speed."""
        return self.verdict in VERDICTS


def main() -> None:
    """Print how far two reports agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs=2, type=Path, metavar="REPORT")
    first, second = (dict(rows(path.read_text())) for path in parser.parse_args().reports)
    common = sorted(first.keys() & second.keys())
    print(f"{len(common)} subgraphs in both, {len(first.keys() ^ second.keys())} in one")
    print(agreement([(first[key], second[key]) for key in common]))


def rows(text: str) -> Iterator[tuple[tuple[str, str], Row]]:
    """Yield task and subgraph, and the row, for each row of the report's table of subgraphs."""
    table = text.partition("\n## Subgraphs: ")[2].partition("\n## ")[0]
    for task, subgraph, ratio, low, high, verdict in ROW.findall(table):
        yield (task, subgraph), Row(_number(ratio), _number(low), _number(high), verdict)


def _number(text: str) -> float:
    return math.nan if text in ("", "-") else float(text)


def agreement(pairs: list[tuple[Row, Row]]) -> str:
    """Return what to print of the subgraphs that both reports have."""
    right = Counter((a.right, b.right) for a, b in pairs)
    both = [(a, b) for a, b in pairs if a.right and b.right]
    crossed = Counter((a.verdict, b.verdict) for a, b in both)
    opposite = crossed["faster", "slower"] + crossed["slower", "faster"]
    equal = sum(a.verdict == b.verdict for a, b in both)
    apart = [abs(math.log(a.ratio / b.ratio)) for a, b in both]
    lines = [
        f"right on both {right[True, True]}, on the first alone {right[True, False]}, on the second alone "
        f"{right[False, True]}, on neither {right[False, False]}",
        f"verdicts on speed of the {len(both)} that are right on both: equal {equal}, opposite (faster and slower) "
        f"{opposite}",
        tabulate([[a, *(crossed[a, b] for b in VERDICTS)] for a in VERDICTS], ["first \\ second", *VERDICTS]),
        f"speed-ups differ by {100 * math.expm1(statistics.median(apart)):.1f} % in the median, by "
        f"{100 * math.expm1(statistics.quantiles(apart, n=20)[-1]):.0f} % or more in one of twenty",
    ]
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
