"""``passbench merge``: one results file from those of a run's shards."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_passbench.commands.results import add_file
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import printable
from pytest_passbench.core.files import kind_of
from pytest_passbench.report import terminal
from pytest_passbench.report.report import report_of
from pytest_passbench.run import merge, results_file
from pytest_passbench.run.ledger import write_reports

HELP = "Make one results file from those of a run's shards."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="folder to write results.json, results.md and report.html to"
    )
    add_file(parser, "files", nargs="+")


def run(args: argparse.Namespace) -> int:
    """Write the merged run and print its board."""
    target = _target(args.out, results_file.NAME)
    merged = merge.merge([(path, results_file.read(path)) for path in args.files])
    results_file.write_file(target, merged)
    report = report_of(merged)
    write_reports(report, target)
    print(terminal.summary(report, terminal.columns()))
    print(f"\n{printable(str(target))}")
    return 0


def _target(out: Path, name: str) -> Path:
    target = out if out.suffix == ".json" else out / name
    if kind_of(target):
        remedy = "give OUT first: a folder without results, or a new name ending in .json"
        raise UserError("exists already", where=target, remedy=remedy)
    return target
