"""``passbench show``: the tables of a stored run again, at another t or by another criterion. Imports no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_passbench.commands.results import add_file, warn_if_changed
from pytest_passbench.core.checks import tolerance
from pytest_passbench.core.criterion import CRITERIA

HELP = "Print the tables of a stored run again, at another t or by another criterion."


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("show", help="print the tables of a stored run again", description=HELP)
    add_file(parser)
    parser.add_argument(
        "--tolerance", type=tolerance, metavar="T", help="what is correct at that t, -10 to 0 (default: the run's)"
    )
    parser.add_argument("--criterion", choices=CRITERIA, help="what is correct by it (default: the run's)")
    parser.add_argument("--task", action="append", default=[], metavar="ID", help="only this task; may be repeated")
    parser.add_argument(
        "--full", action="store_true", help="also every failure, every miss and a line for each subgraph"
    )
    parser.add_argument(
        "--format", choices=("text", "markdown"), default="text", help="markdown is all of results.md (default: text)"
    )
    parser.add_argument("--html", type=Path, metavar="PATH", help="write the page for a browser there as well")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from pytest_passbench.core.ladder import T_STRICT
    from pytest_passbench.report import markdown, rescored, terminal
    from pytest_passbench.report.report import report_of
    from pytest_passbench.run import results_file

    path = results_file.located(args.file)
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    view = rescored.rescored(stored, args.tolerance, args.criterion, args.task, str(path))
    at = T_STRICT if args.tolerance is None else args.tolerance
    report = report_of(view, at, rescored.caveats(stored, view))
    if args.format == "markdown":
        print(markdown.render(report), end="")
    else:
        print(terminal.summary(report, terminal.columns(), args.full))
    if args.html is not None:
        from pytest_passbench.report import html

        results_file.write_text(args.html, html.page(report))
    return 0
