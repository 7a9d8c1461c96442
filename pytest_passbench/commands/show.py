"""``passbench show``: the tables or scores of a stored run, or of bare subgraphs, computed again.

With --json the scores are those under both criteria. Imports no torch.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.commands.results import add_file, inert, warn_if_changed
from pytest_passbench.core.checks import exponent, failure_value, tolerance
from pytest_passbench.core.criterion import CRITERIA
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.settings import ScoreSettings

if TYPE_CHECKING:
    from pytest_passbench.core.run import Run
    from pytest_passbench.score.board import ScoreRow, Tasks


HELP = """Print the tables of a stored run again: at another t, by another criterion, or scored with other parameters.
With --json print all scores under both criteria; FILE may also be JSON with bare "subgraphs" then."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("show", help="print the tables of a stored run again", description=HELP)
    add_file(parser)
    parser.add_argument(
        "--tolerance", type=tolerance, metavar="T", help="what is correct at that t, -10 to 0 (default: the "
        "run's; of the board and --json: -5)",
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
    parser.add_argument("--b", type=failure_value, help="what a failure counts (default: the run's, else 0.1)")
    parser.add_argument("--p", type=exponent, help="extra power of slowdowns (default: the run's, else 0)")
    parser.add_argument(
        "--interpretation",
        choices=("default", "mismatch_extended"),
        help="from which t failures are tolerated (default: the run's, else default)",
    )
    parser.add_argument("--html", type=Path, metavar="PATH", help="write the page for a browser there as well")
    parser.set_defaults(run=inert(run))


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from pytest_passbench.report import markdown, rescored, terminal
    from pytest_passbench.report.report import report_of
    from pytest_passbench.run import results_file
    from pytest_passbench.run.forecast import forecast_line

    path, at = results_file.located(args.file), T_STRICT if args.tolerance is None else args.tolerance
    if args.html is not None and args.html.resolve() == path.resolve():
        raise UserError("is the results file itself", where=args.html, remedy="give the page a name of its own")
    if args.json:
        ignored = [name for name in ("html", "full", "criterion") if getattr(args, name)]
        if ignored or args.format != "text":
            where = f"--{(ignored or ['format'])[0]}"
            raise UserError("has no effect on --json", where=where, remedy="leave one of both out")
        print(json.dumps(scores(results_file.load(path), path, args, at), indent=1))
        return 0
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    view = rescored.rescored(with_parameters(stored, args), args.tolerance, args.criterion, args.task, str(path))
    caveats = [*rescored.caveats(stored, view), *caveat(stored, view)]
    report = report_of(view, at, caveats)
    if args.format == "markdown":
        print(markdown.render(report), end="")
    else:
        print(terminal.summary(report, terminal.columns(), args.full))
        if line := forecast_line(view):
            print(f"\n{line}")
    if args.html is not None:
        from pytest_passbench.core.files import write_text
        from pytest_passbench.report import html

        write_text(args.html, html.page(report))
    return 0


def scores(data: Any, path: Path, args: argparse.Namespace, t: int) -> dict[str, Any]:
    """Return the scores of what was read from ``path``: a results file, or bare subgraphs. Raises UserError."""
    from pytest_passbench.report.rescored import rescored
    from pytest_passbench.run import results_file
    from pytest_passbench.score import es

    if isinstance(data, dict) and "subgraphs" in data:
        return score_case(data, path, args, t)
    run = results_file.parse(data, path)
    warn_if_changed(run, path)
    es.check(run.score_settings, path)
    run = rescored(with_parameters(run, args), tasks=args.task, where=str(path))
    return score_run(run, t)


def with_parameters(run: Run, args: argparse.Namespace) -> Run:
    """Return the run as if it had been scored with the parameters of the command line."""
    parameters = score_settings(args, run.score_settings)
    changed = parameters != run.score_settings
    return replace(run, settings={**run.settings, "score": asdict(parameters)}) if changed else run


def caveat(run: Run, view: Run) -> list[str]:
    """Return a sentence about a view of a run that is scored with other parameters; nothing if they are the same."""
    if run.score_settings == view.score_settings:
        return []
    here, there = (f"b = {s.b:g}, p = {s.p:g}, {s.interpretation}" for s in (view.score_settings, run.score_settings))
    return [f"Scored with {here}; the run's own are {there}."]


def score_settings(args: argparse.Namespace, base: ScoreSettings) -> ScoreSettings:
    """Return the parameters of the command line; ``base`` has those that it does not name."""
    named = {name: getattr(args, name) for name in ("b", "p", "interpretation")}
    return replace(base, **{name: value for name, value in named.items() if value is not None})


def score_case(data: dict[str, Any], path: Path, args: argparse.Namespace, t: int) -> dict[str, Any]:
    """Return the scores of bare subgraphs. ``args`` override the settings in ``data``. Raises UserError."""
    from pytest_passbench.score import board, es, subgraph

    items = data["subgraphs"]
    if not isinstance(items, list):
        raise UserError('"subgraphs" is not a list', where=path, remedy="give one object per subgraph")
    judged = [subgraph.from_json(item, f"{path}: subgraph {index}") for index, item in enumerate(items)]
    base = ScoreSettings(**{name: data[name] for name in ("b", "p", "interpretation") if name in data})
    es.check(base, path)
    settings = score_settings(args, base)
    columns = {
        "gmean": board.gmean(judged, t),
        "correct": board.correctness(judged, t),
        "fast1": board.fast(judged, 1.0, t),
        "subgraphs": len(judged),
        "unmeasured": es.unmeasured(judged, settings),
    }
    return {**asdict(settings), "tolerance": t, **es.evaluate(judged, settings).to_json(), **columns}


def score_run(run: Run, t: int) -> dict[str, Any]:
    """Return the scores of a run's candidates and baselines. All but its curves and AS are at ``t``."""
    from pytest_passbench.score import board, es

    settings, scored = run.score_settings, []
    for name in run.names:
        tasks = board.tasks_of(run, name)
        each = {task: es.evaluate(group, settings).to_json() for task, group in tasks.items()}
        scored.append({**_scores_of(run, name, tasks, board.tasks_of(run, name, "fp64"), t), "tasks": each})
    baselines = [
        _scores_of(run, name, board.baseline_of(run, name), board.baseline_of(run, name, "fp64"), t)
        for name in run.baselines
    ]
    first = scored[0] if scored else board.row("", board.tasks_of(run, ""), settings).scores.to_json()
    headline = {key: first[key] for key in ("s", "es", "as", "es_published", "as_published")}
    return {**asdict(settings), "tolerance": t, **headline, "candidates": scored, "baselines": baselines}


def _scores_of(run: Run, name: str, tasks: Tasks, accurate: Tasks, t: int) -> dict[str, Any]:
    """Return a program's scores by agreement, and by accuracy (``fp64``), None if the file does not have that."""
    from pytest_passbench.score import board
    from pytest_passbench.score.possible import with_total

    row, by_accuracy = (_row(board.row(name, part, run.score_settings, t)) for part in (tasks, accurate))
    shares = with_total([item for group in tasks.values() for item in group], t)
    possible = {kind: asdict(value) for kind, value in shares.items()}
    fp64 = {key: value for key, value in by_accuracy.items() if key != "name"} if run.has_accuracy else None
    return {**row, "possible": possible, "fp64": fp64}


def _row(row: ScoreRow) -> dict[str, Any]:
    columns = ("name", "gmean", "correct", "fast1", "subgraphs", "unmeasured", "missing")
    return {**{name: getattr(row, name) for name in columns}, **row.scores.to_json()}
