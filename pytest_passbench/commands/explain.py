"""``passbench explain``: what a candidate's passes do to tasks, and what the judge would refuse."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_passbench.api.explanation import render
from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.commands.results import inert
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, line, printable
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.settings import SUITES, Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.session import Session
from pytest_passbench.judge.survey import Survey, survey
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef

MAX_CHARACTERS = 300  # of the sentence on a task in a list

HELP = """Read a candidate in a sandbox, screen and compile its kernels, and show what the judge would refuse. For
each TASK, also show its graphs with the lines that passes match, the launch plan of each match, and, of the passes
that match nowhere, the nearest place and what was in the way. Equal subgraphs are shown once. With --all or
--missed, list tasks instead: a line for each task that a pass matches, with how many of its subgraphs are matched
and by which pass, or for each that no pass matches, with the nearest miss. Nothing is judged, and no kernel is run
but with --sanitize: then the C++ kernels of the matches run in a sandbox with the compiler's sanitizers, which name
the line of an access out of bounds.
The exit code is 1 if an error or a violation is shown, if no pass matches a task that is named, or if no task is
listed."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder of passes")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="an installed task's id, or a task file or sample; "
                        "with --all or --missed also a folder of them (default: the installed tasks)")  # fmt: skip
    parser.add_argument("--subgraph", metavar="ID", help="only this subgraph of the task")
    parser.add_argument("--policy", choices=("kernels", "open"), help="default: kernels")
    parser.add_argument("--sanitize", action="store_true", help="run the C++ kernels of the matches with ASan and "
                        "UBSan, on memory of the plan's sizes")  # fmt: skip
    listing = parser.add_mutually_exclusive_group()
    listing.add_argument("--all", action="store_true", help="list the tasks that a pass matches")
    listing.add_argument("--missed", action="store_true", help="list the tasks that no pass matches")
    listing.add_argument("--json", action="store_true", help="print JSON, with every subgraph's launch plans")
    parser.add_argument("--suite", choices=SUITES, help="with --all or --missed: only tasks of this suite (default: "
                        "full of the installed tasks, all of those that are named)")  # fmt: skip


@inert
def run(args: argparse.Namespace) -> int:
    """Print what is asked for, and return the exit code."""
    if args.all or args.missed:
        for option in ("subgraph", "policy", "sanitize"):
            if getattr(args, option):
                raise UserError("has no effect with --all or --missed", where=f"--{option}",
                                remedy="leave it out, or leave --all and --missed out")  # fmt: skip
        return _list_tasks(args.directory, args.tasks, args.suite, args.missed)
    if args.suite:
        raise UserError("--suite chooses among tasks to list", remedy="add --all or --missed, or leave --suite out")
    if args.sanitize and not args.tasks:
        raise UserError("--sanitize runs the kernels of a task's matches", remedy="name a task")
    tasks, policy = _named_tasks(args.tasks, args.subgraph), args.policy or "kernels"
    return _explain(args.directory, tasks, policy, args.json, args.sanitize)


def _named_tasks(words: Sequence[str], subgraph: str | None) -> list[Task]:
    """Return the tasks with these names. Raises UserError for a name or a subgraph that is not there."""
    if subgraph is not None and len(words) != 1:
        raise UserError("--subgraph is a subgraph of one task", remedy="name one task before it")
    tasks = [find.single(word).load() for word in words]
    return [only(task, subgraph) for task in tasks] if subgraph is not None else tasks


def only(task: Task, subgraph: str) -> Task:
    """Return the task with one of its subgraphs. Raises UserError if it has none of that id."""
    subgraphs = tuple(item for item in task.subgraphs if item.id == subgraph)
    if not subgraphs:
        ids = ", ".join(item.id for item in task.subgraphs[:3])
        raise UserError(
            f"{task.id} has no subgraph {subgraph!r}", remedy=f"it has {ids}, ...: `passbench tasks show`"
        )
    return replace(task, subgraphs=subgraphs)


def _explain(directory: Path, tasks: Sequence[Task], policy: Any, as_json: bool, sanitize: bool) -> int:
    surveys: list[tuple[Task | None, Survey]] = []
    subjects: Sequence[Task | None] = tasks or [None]
    for task in subjects:
        surveys.append((task, survey(directory, policy, task, sanitize)))
        if not as_json:
            title = [f"{task.id}:"] if task is not None and len(tasks) > 1 else []
            print(printable("\n".join([*title, *render(task, surveys[-1][1])]), LINES))
            sys.stdout.flush()
    if as_json:
        print(json.dumps(to_json(surveys), indent=1))
    return int(any(item.fault or (task and not any(m.places for m in item.matched)) for task, item in surveys))


def to_json(surveys: Sequence[tuple[Task | None, Survey]]) -> dict[str, Any]:
    """Return surveys as plain data: ``findings``, each once, and ``matched`` and ``plans`` with their tasks."""
    findings: list[dict[str, Any]] = []
    for finding in (asdict(finding) for _, item in surveys for finding in item.findings):
        findings += [finding] if finding not in findings else []
    named = [(task.id, item) for task, item in surveys if task is not None]
    return {
        "findings": findings,
        "matched": [{"task": task, **asdict(match)} for task, item in named for match in item.matched],
        "plans": [{"task": task, **asdict(plan)} for task, item in named for plan in item.plans],
    }


def _list_tasks(directory: Path, words: Sequence[str], suite: str | None, missed: bool) -> int:
    """Print a line for each task that a pass matches, or, if ``missed``, for each other task.

    A task for which that cannot be found out has a line in both lists. Totals and progress go to stderr. Return the
    exit code: 1 if there is such a task, or no line at all. Raises UserError if there is no task to look at.
    """
    candidate, refs = Candidate.open(directory), _refs(words, suite)
    progress, width, matched = ProgressLines("explain"), max(len(ref.id) for ref in refs), 0
    unknown = lines = 0
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for number, ref in enumerate(refs, 1):
            try:
                matches, text = _in_words(judge, ref, candidate)
            except ArmFailure as failure:
                matches, text = None, line(f"cannot be told: {failure.message}", MAX_CHARACTERS)
            matched, unknown = matched + bool(matches), unknown + (matches is None)
            if matches is None or matches != missed:
                progress.clear()
                print(f"{ref.id:<{width}}  {text}".rstrip(), flush=True)
                lines += 1
            progress.update(f"{number} of {len(refs)} tasks looked at, {matched} matched")
    progress.clear()
    open_tasks = f", {unknown} cannot be told" if unknown else ""
    print(f"{matched} of {len(refs)} tasks matched{open_tasks}", file=sys.stderr)
    return int(unknown > 0 or not lines)


def _refs(words: Sequence[str], suite: str | None) -> list[TaskRef]:
    """Return the tasks of a suite: of those that are named, or else of the installed ones."""
    if not words:
        refs, suite = find.discover(find.installed_tasks()), suite or "full"
    else:
        refs = find.distinct([ref for word in words for ref in find.at(word)])
    refs = find.select(refs, suite or "all")
    if not refs:
        raise UserError(f"no task is in the suite {suite}", remedy=f"suites are: {', '.join(SUITES)}")
    return refs


def _in_words(judge: Session, ref: TaskRef, candidate: Candidate) -> tuple[bool, str]:
    """Return whether a candidate matches a task, and in words how it does, or the nearest miss.

    Raises ArmFailure for a mistake in the candidate that leaves it open.
    """
    graphs = list(judge.matches(ref, candidate))
    names = dict.fromkeys(match.name for match in graphs if match.name)
    if not names:
        miss = next((match.miss for match in graphs if match.miss), "it has no passes for this task")
        return False, line(miss, MAX_CHARACTERS)
    matched = sum(match.subgraphs for match in graphs if match.name)
    return True, f"{matched}/{sum(match.subgraphs for match in graphs)} subgraphs, by {', '.join(names)}"
