"""``passbench doctor``: properties of this machine that will hurt timings, with remedies. Imports no torch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

HELP = "List properties of this machine that will hurt timings, with remedies."


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="find what will hurt timings on this machine",
        description=HELP,
        epilog="Exit code 1 if anything is a problem; warnings leave it 0.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: name, level, found, remedy of each")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings. Return 1 if any is a problem, else 0."""
    from pytest_passbench import doctor

    checks = doctor.summary()
    print(json.dumps([asdict(check) for check in checks], indent=1) if args.json else doctor.text(checks))
    return int(any(check.level == "problem" for check in checks))
