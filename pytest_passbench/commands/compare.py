"""``passbench compare``: what changed from one results file to another, task by task. Imports no torch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from pytest_passbench.commands.results import add_file, warn_if_changed
from pytest_passbench.core.checks import fraction
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.run import Run, plain
from pytest_passbench.report import changes, markdown, run_text, terminal
from pytest_passbench.report.changes import TaskChange
from pytest_passbench.run import results_file, stored
from pytest_passbench.score.interval import Interval

HELP = "Show what changed from one results file to another, task by task."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, "before", "BEFORE")
    add_file(parser, "after", "AFTER")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    limit = "exit with 1 if an answer was lost, or more of a speed-up than this: 3%% or 0.03"
    parser.add_argument("--max-regression", type=fraction, metavar="SHARE", help=limit)


def run(args: argparse.Namespace) -> int:
    """Print the changes. Return 1 if one is worse than ``--max-regression`` allows, else 0.

    Then raises UserError if ``--max-regression`` is given and a candidate has no subgraph that can be compared.
    """
    paths = [results_file.located(path) for path in (args.before, args.after)]
    before, after = map(results_file.read, paths)
    for path, loaded in zip(paths, (before, after), strict=True):
        warn_if_changed(loaded, path)
    both = stored.compared(paths[0], before, after)
    notes = changes.notes(both) + run_text.left_out_sentences(both)
    sentences = [changes.sentence(both, name) for name in both.names] + notes
    tables = [changes.table(both, name) for name in both.names]
    bad = [] if args.max_regression is None else list(worse(both, args.max_regression))
    if args.format == "json":
        print(json.dumps({**as_json(both), "notes": notes, "regressions": bad}, indent=1))
    elif args.format == "markdown":
        print(markdown.changes(tables, sentences + bad), end="")
    else:
        print(terminal.changes(tables, sentences + bad, terminal.columns()))
    without = [name for name in both.names if not changes.of_all(both, name).compared]
    if without and args.max_regression is not None:
        what = f"{changes.nothing_compared(both, without)}, so --max-regression was not checked"
        raise UserError(what, where=paths[1], remedy=changes.SAME_TASKS)
    return int(bool(bad))


def worse(both: Run, limit: float) -> list[str]:
    """Return a line for each subgraph that lost its answer, or certainly more of its speed-up than ``limit``."""
    regressions = []
    for record in both.records:
        name = f"{record.task}/{record.subgraph} of {record.candidate}"
        if changes.lost(record):
            regressions.append(f"regression: {name}: {changes.outcome(record, 0.0)}")
        elif changes.doubtful(record, limit):
            regressions.append(f"regression: {name}: speed-up {changes.change_of(record)} times that of before")
    return regressions


def as_json(both: Run) -> dict[str, Any]:
    """Return the changes as data: for each candidate the mean over all, and a list of tasks, the worst first."""
    return {
        "before": both.compared["file"],
        "delta": changes.delta_of(both),
        "candidates": [
            {
                "name": name,
                "before": both.compared["candidates"][name],
                **_figures(changes.of_all(both, name)),
                "tasks": [{"task": item.task, **_figures(item)} for item in changes.of_tasks(both, name)],
            }
            for name in both.names
        ],
    }


def _figures(item: TaskChange) -> dict[str, Any]:
    return {
        "speed_up_before": _interval(item.before),
        "speed_up_after": _interval(item.after),
        "change": _interval(item.change),
        "compared": item.compared,
        "correct_before": item.correct_before,
        "correct_after": item.correct_after,
        "outcomes": item.outcomes,
    }


def _interval(value: Interval | None) -> dict[str, Any] | None:
    return None if value is None else plain(asdict(value))
