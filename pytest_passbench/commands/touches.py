"""``passbench touches``: the tasks that a candidate's passes match. Only graphs are matched, no kernel is run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.progress import Progress
from pytest_passbench.core.settings import SUITES, Settings

if TYPE_CHECKING:
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.task import Task
    from pytest_passbench.judge.session import Session

HELP = """One line for each task that has a subgraph which a pass matches: its id, how many of its subgraphs a pass
matches, and the first pass that matches each. With --missed the others are listed, each with the nearest place of the
nearest pass and what was in the way there. The order is that of 'passbench tasks list'. Progress and totals go to
stderr. Only graphs are matched, no kernel is run. The exit code is 1 if no task is listed."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("touches", help="list the tasks that a candidate's passes match", description=HELP)
    parser.add_argument("candidate", type=Path, metavar="DIR", help="a folder of passes")
    parser.add_argument("tasks", type=Path, nargs="*", metavar="PATH", help="default: the installed tasks")
    parser.add_argument("--suite", choices=SUITES, help="default: full of the installed tasks, all of given ones")
    parser.add_argument(
        "--missed", action="store_true", help="list the tasks that no pass matches, with the nearest miss"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tasks that a pass matches, or those that none does. Return 1 if there are none."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite import find

    candidate = Candidate.open(args.candidate)
    bases = args.tasks or [find.installed_tasks()]
    suite = args.suite or ("all" if args.tasks else "full")
    refs = find.select([ref for base in bases for ref in find.discover(base)], suite)
    if not refs:
        raise UserError(f"no task is in the suite {suite}", remedy=f"suites are: {', '.join(SUITES)}")
    progress, width, touched = Progress("touches"), max(len(ref.id) for ref in refs), 0
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for number, ref in enumerate(refs, 1):
            said, miss = told(judge, ref.load(), candidate)
            touched += bool(said)
            if bool(said) != args.missed:
                progress.clear()
                print(f"{ref.id:<{width}}  {miss if args.missed else said}".rstrip(), flush=True)
            progress.update(f"{number} of {len(refs)} tasks looked at, {touched} matched")
    progress.clear()
    print(f"{touched} of {len(refs)} tasks matched", file=sys.stderr)
    return 0 if (len(refs) - touched if args.missed else touched) else 1


def told(judge: Session, task: Task, candidate: Candidate) -> tuple[str, str]:
    """Return in words how a candidate matches a task, or "" and the nearest miss.

    A mistake in the candidate that leaves it open is quoted.
    """
    from pytest_passbench.judge.arms.failures import ArmFailure

    try:
        found = {one.graph: one for one in judge.matches(task, candidate)}
    except ArmFailure as failure:
        return line(f"cannot be told: {failure.message}", 300), ""
    names = {graph: one.name for graph, one in found.items() if one.name}
    if not names:
        return "", line(next((one.miss for one in found.values() if one.miss), "it has no passes for this task"), 300)
    count = sum(subgraph.graph in names for subgraph in task.subgraphs)
    return f"{count}/{len(task.subgraphs)} subgraphs, by {', '.join(dict.fromkeys(names.values()))}", ""
