"""The results files that commands are given."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.escape import printable

if TYPE_CHECKING:
    from pytest_passbench.core.run import Run


def add_file(
    parser: argparse.ArgumentParser, name: str = "file", metavar: str = "FILE", nargs: str | None = None
) -> None:
    """Add an argument that is a results file."""
    parser.add_argument(name, type=Path, metavar=metavar, nargs=nargs, help="results.json, or a run's folder")


def warn_if_changed(run: Run, path: Path) -> None:
    """Print a warning if a results file was changed after it was written."""
    if not run.untouched:
        print(f"passbench: warning: {printable(str(path))}: was changed after it was written", file=sys.stderr)
