"""A long run in which every fifth measured process crashes, hangs, floods its output, forks or fills memory.

    python benchmarks/misbehaving.py --subgraphs 300

Prints what became of them, and whatever was left behind: processes, files, open files, memory of the judge.
Writes reports/benchmarks/misbehaving.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from engine import REPORTS, write

from shared import misbehaving_run


def main() -> None:
    """Run, write, print. Exit with 1 if a subgraph ended wrongly, anything was left, or the judge's memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subgraphs", type=int, default=300, metavar="N", help="how many subgraphs")
    count = parser.parse_args().subgraphs
    REPORTS.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=REPORTS) as folder:
        outcome = misbehaving_run.run(count, Path(folder))
    summary = {"subgraphs": count, "seconds": time.perf_counter() - begin, **asdict(outcome)}
    write("misbehaving", summary)
    print(summary)
    sys.exit(bool(outcome.wrong or outcome.left or outcome.grown >= misbehaving_run.MOST_GROWN))


if __name__ == "__main__":
    main()
