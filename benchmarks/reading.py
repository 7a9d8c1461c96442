"""Seconds of what a run does before it judges anything: `python benchmarks/reading.py`.

Collecting the tasks of the package (a whole `pytest --collect-only`, interpreter included), finding them and reading
their headers, and the source audit of 100 passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pytest_passbench.candidate.audit import audit
from pytest_passbench.suite.find import discover, installed_tasks

CANDIDATE = Path(__file__).resolve().parent.parent / "candidates/cpu-fused"
PASSES, REPEATS = 100, 5


def main() -> None:
    """Measure and print, medians."""
    line = [sys.executable, "-m", "pytest", "--passbench", f"--candidate={CANDIDATE}", "--collect-only", "-q"]
    print(f"collecting: {_seconds(lambda: subprocess.run(line, check=True, capture_output=True)):.2f} s")
    print(f"finding {len(discover(installed_tasks()))}: {_seconds(lambda: discover(installed_tasks())):.2f} s")
    with tempfile.TemporaryDirectory() as name:
        folder = _passes(Path(name))
        print(f"source audit of {PASSES} passes: {_seconds(lambda: audit(folder)):.2f} s")


def _passes(folder: Path) -> Path:
    """So many copies of one pass."""
    source = (CANDIDATE / "add_rms_norm.py").read_text()
    names = [f"pass_{number}" for number in range(PASSES)]
    for name in names:
        (folder / f"{name}.py").write_text(source)
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(names))
    return folder


def _seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


if __name__ == "__main__":
    main()
