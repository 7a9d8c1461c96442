"""``passbench doctor``: properties of this machine that will hurt timings, with remedies. Imports no torch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from pytest_passbench import doctor

HELP = "List properties of this machine that will hurt timings, with remedies."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = "Exit code 1 if anything is a problem; warnings leave it 0."
    parser.add_argument("--json", action="store_true", help="print JSON: name, level, found, remedy of each")


def run(args: argparse.Namespace) -> int:
    """Print the findings. Return 1 if any is a problem, else 0."""
    checks = doctor.summary()
    print(json.dumps([asdict(check) for check in checks], indent=1) if args.json else doctor.text(checks))
    return int(any(check.level == "problem" for check in checks))
