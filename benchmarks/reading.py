"""How long a run takes before it judges anything: `python benchmarks/reading.py`.

Prints the seconds of collecting the tasks of the package (a whole `pytest --collect-only`, interpreter included), and
of finding them and reading their headers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pytest_passbench.suite.find import discover, installed_tasks

CANDIDATE = Path(__file__).resolve().parent.parent / "candidates/cpu-fused"
REPEATS = 5


def main() -> None:
    """Print the median seconds of both."""
    line = [sys.executable, "-m", "pytest", "--passbench", f"--candidate={CANDIDATE}", "--collect-only", "-q"]
    print(f"collecting: {_seconds(lambda: subprocess.run(line, check=True, capture_output=True)):.2f} s")
    print(f"finding {len(discover(installed_tasks()))}: {_seconds(lambda: discover(installed_tasks())):.2f} s")


def _seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


if __name__ == "__main__":
    main()
