"""``passbench show``: the tables or scores of a stored run, or of bare subgraphs, computed again.

A run is seen at another t, by another criterion, or of some of its tasks, and nothing is judged anew: records keep
the smallest t at which each output passes, and its errors against float64. With --json the scores are those under
both criteria. Imports no torch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pytest_passbench.commands.results import add_file, inert, warn_if_changed
from pytest_passbench.core.checks import exponent, failure_value, tolerance
from pytest_passbench.core.criterion import CRITERIA, Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import write_text
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.report import html, markdown, tables, terminal
from pytest_passbench.report.report import report_of
from pytest_passbench.run import results_file
from pytest_passbench.run.forecast import forecast_line
from pytest_passbench.score import board, es, subgraph
from pytest_passbench.score.board import ScoreRow, Tasks
from pytest_passbench.score.possible import with_total

MAX_NAMED = 10  # tasks in the message about a task that the run does not have

HELP = """Print the tables of a stored run again: at another t, by another criterion, or scored with other parameters.
With --json print all scores under both criteria; FILE may also be JSON with bare "subgraphs" then."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
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


@inert
def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    path, at = results_file.located(args.file), T_STRICT if args.tolerance is None else args.tolerance
    if args.html is not None and args.html.resolve() == path.resolve():
        raise UserError("is the results file itself", where=args.html, remedy="give the page a name of its own")
    if args.json:
        ignored = [name for name in ("html", "full", "criterion") if getattr(args, name)]
        if ignored or args.format != "text":
            where = f"--{(ignored or ['format'])[0]}"
            raise UserError("has no effect on --json", where=where, remedy="leave one of the two out")
        print(json.dumps(scores(results_file.load(path), path, args, at), indent=1))
        return 0
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    view = rescored(with_parameters(stored, args), args.tolerance, args.criterion, args.task, str(path))
    report = report_of(view, at, caveats(stored, view))
    if args.format == "markdown":
        print(markdown.render(report), end="")
    else:
        print(terminal.summary(report, terminal.columns(), args.full))
        if line := forecast_line(view):
            print(f"\n{line}")
    if args.html is not None:
        write_text(args.html, html.page(report))
    return 0


def scores(data: Any, path: Path, args: argparse.Namespace, t: int) -> dict[str, Any]:
    """Return the scores of what was read from ``path``: a results file, or bare subgraphs. Raises UserError."""
    if isinstance(data, dict) and "subgraphs" in data:
        return score_case(data, path, args, t)
    run = results_file.parse(data, path)
    warn_if_changed(run, path)
    run = rescored(with_parameters(run, args), tasks=args.task, where=str(path))
    return score_run(run, t)


def with_parameters(run: Run, args: argparse.Namespace) -> Run:
    """Return the run as if it had been scored with the parameters of the command line."""
    parameters = score_settings(args, run.score_settings)
    changed = parameters != run.score_settings
    return replace(run, settings={**run.settings, "score": asdict(parameters)}) if changed else run


def rescored(
    run: Run, at: int | None = None, criterion: Criterion | None = None, tasks: Sequence[str] = (), where: str = ""
) -> Run:
    """Return the run as if it had been made at t = ``at``, by ``criterion``, on ``tasks`` alone.

    None, or an empty sequence, keeps the run's own value. Raises UserError, which names the file ``where``, for a
    task that the run does not have, and for a criterion that needs errors against float64 if the run has none.
    """
    changed = {"tolerance": at, "criterion": criterion}
    settings = {**run.settings, **{name: value for name, value in changed.items() if value is not None}}
    if criterion not in (None, "ladder") and not run.has_accuracy:
        remedy = "judge again with this version, or leave --criterion out"
        what = f"has no errors against float64, so nothing is known by {criterion}"
        raise UserError(what, where=where, remedy=remedy)
    for name in tasks:
        if name not in run.tasks:
            named = nearest(name, run.tasks)[:MAX_NAMED]
            remedy = f"the run has: {', '.join(named)}" + (", ..." if len(run.tasks) > len(named) else "")
            raise UserError(f"has no task {abbreviated(name)}", where=where, remedy=remedy)
    selected = [name for name in run.tasks if name in tasks] if tasks else run.tasks
    records = [
        replace(
            record,
            tolerance=record.tolerance if at is None else at,
            criterion=record.criterion if criterion is None else criterion,
        )
        for record in run.records
        if not tasks or record.task in tasks
    ]
    return replace(run, settings=settings, tasks=selected, records=records)


def nearest(name: str, tasks: Sequence[str]) -> list[str]:
    """Return the tasks in the order of their likeness to a name. The ids that hold the name lead."""
    alike = get_close_matches(name, tasks, n=max(1, len(tasks)), cutoff=0.0)
    return sorted(alike, key=lambda task: name not in task)


def caveats(run: Run, view: Run) -> list[str]:
    """Return a sentence for each way in which ``view``, which :func:`rescored` made of ``run``, differs from it."""
    sentences = []
    run_tolerance = tables.tolerance(run)
    if tables.tolerance(view) != run_tolerance:
        sentences.append(
            f"Seen at t = {tables.tolerance(view)}: what is correct was computed again. The audit's findings and the "
            f"greatest errors in messages are still those of the run, which was judged at t = {run_tolerance}."
        )
    if view.criterion != run.criterion:
        sentences.append(f"Seen by the criterion {view.criterion}; the run's own is {run.criterion}.")
    if len(view.tasks) < len(run.tasks):
        counts = f"{len(view.tasks)} of the run's {len(run.tasks)}"
        sentences.append(f"Only {counts} tasks: all scores are of these alone.")
    if view.score_settings != run.score_settings:
        both = view.score_settings, run.score_settings
        here, there = (f"b = {s.b:g}, p = {s.p:g}, {s.interpretation}" for s in both)
        sentences.append(f"Scored with {here}; the run's own are {there}.")
    return sentences


def score_settings(args: argparse.Namespace, base: ScoreSettings) -> ScoreSettings:
    """Return the parameters of the command line. Those that it does not name are taken from ``base``."""
    named = {name: getattr(args, name) for name in ("b", "p", "interpretation")}
    return replace(base, **{name: value for name, value in named.items() if value is not None})


def score_case(data: dict[str, Any], path: Path, args: argparse.Namespace, t: int) -> dict[str, Any]:
    """Return the scores of bare subgraphs. ``args`` override the settings in ``data``. Raises UserError."""
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
    row, by_accuracy = (_row(board.row(name, part, run.score_settings, t)) for part in (tasks, accurate))
    shares = with_total([item for group in tasks.values() for item in group], t)
    possible = {kind: asdict(value) for kind, value in shares.items()}
    fp64 = {key: value for key, value in by_accuracy.items() if key != "name"} if run.has_accuracy else None
    return {**row, "possible": possible, "fp64": fp64}


def _row(row: ScoreRow) -> dict[str, Any]:
    columns = ("name", "gmean", "correct", "fast1", "subgraphs", "unmeasured", "missing")
    return {**{name: getattr(row, name) for name in columns}, **row.scores.to_json()}
