"""10,000 mutated launch plans, and as many messages, graphs and constants.

    python benchmarks/hostile.py [--count 10000]

Prints how far the plans came (none may be right: their kernels do nothing) and runs the property tests of
tests/plans/test_hostile.py with that many examples. Exits with 1 if a plan was right, or if a test failed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from shared import hostile_plans as hostile

TEST = Path(__file__).resolve().parent.parent / "tests/plans/test_hostile.py"


def main() -> int:
    """Run the plans and the tests. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count: int = parser.parse_args().count
    start = time.perf_counter()
    came = Counter(_one(seed) for seed in range(count))
    told = ", ".join(f"{number} {how}" for how, number in came.most_common())
    print(f"{count} plans: {told}; {time.perf_counter() - start:.1f} s", flush=True)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TEST)]
    tests = subprocess.run(line, env={**os.environ, "PASSBENCH_MUTATIONS": str(count)}, check=False)
    return int(bool(came["right"] or tests.returncode))


def _one(seed: int) -> str:
    rng = random.Random(seed)
    return hostile.tried(hostile.mutated(rng.choice(hostile.PLANS), rng))


if __name__ == "__main__":
    sys.exit(main())
