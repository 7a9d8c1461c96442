"""The results files that commands are given."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_passbench.core.escape import printable
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


def inert(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return the command with GitHub's workflow commands stopped while it prints text, which quotes candidates.

    JSON and Markdown are printed unchanged, since they go to files.
    """

    def guarded(args: argparse.Namespace) -> int:
        is_text = not args.json and getattr(args, "format", "text") == "text"
        if os.environ.get("GITHUB_ACTIONS") != "true" or not is_text:
            return run(args)
        token = f"passbench-{secrets.token_hex(16)}"
        print(f"::stop-commands::{token}", flush=True)
        try:
            return run(args)
        finally:
            print(f"::{token}::", flush=True)

    return guarded
