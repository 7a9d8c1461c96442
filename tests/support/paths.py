"""Where things lie in a checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
SHARED = ROOT / "benchmarks" / "shared"
DATA = TESTS / "data"
