"""``passbench show``: the tables or scores of a stored run, computed again. Imports no torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_passbench.commands import scores
from pytest_passbench.commands.results import add_file, warn_if_changed
from pytest_passbench.core.checks import tolerance
from pytest_passbench.core.criterion import CRITERIA

HELP = """Print the tables of a stored run again: at another t, by another criterion, or scored with other parameters.
With --json print all scores under both criteria; FILE may also be JSON with bare "subgraphs" then."""


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
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    scores.add_parameters(parser)
    parser.add_argument("--html", type=Path, metavar="PATH", help="write the page for a browser there as well")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from pytest_passbench.core.ladder import T_STRICT
    from pytest_passbench.report import markdown, rescored, terminal
    from pytest_passbench.report.report import report_of
    from pytest_passbench.run import results_file
    from pytest_passbench.run.duration_forecast import forecast_line

    path = results_file.located(args.file)
    if args.json:
        print(json.dumps(scores.scores(results_file.load(path), path, args), indent=1))
        return 0
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    view = rescored.rescored(
        scores.with_parameters(stored, args), args.tolerance, args.criterion, args.task, str(path)
    )
    caveats = [*rescored.caveats(stored, view), *scores.caveat(stored, view)]
    at = T_STRICT if args.tolerance is None else args.tolerance
    report = report_of(view, at, caveats)
    if args.format == "markdown":
        print(markdown.render(report), end="")
    else:
        print(terminal.summary(report, terminal.columns(), args.full))
        if line := forecast_line(view):
            print(f"\n{line}")
    if args.html is not None:
        from pytest_passbench.report import html

        results_file.write_text(args.html, html.page(report))
    return 0
