"""``passbench touches``: the tasks that a candidate's passes match. Only graphs are matched, no kernel is run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import SUITES, Settings


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("touches", help="list the tasks that a candidate's passes match",
                                   description=__doc__)
    parser.add_argument("candidate", type=Path, metavar="DIR", help="a folder of passes")
    parser.add_argument("tasks", type=Path, nargs="*", metavar="PATH", help="default: the installed tasks")
    parser.add_argument("--suite", choices=SUITES, help="default: full of the installed tasks, all of given ones")
    parser.set_defaults(run=run)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the ids of the tasks that a pass matches, then the counts. Return 1 if there is none."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite import find

    candidate = Candidate.open(args.candidate)
    bases = args.tasks or [find.installed_tasks()]
    suite = args.suite or ("all" if args.tasks else "full")
    refs = find.select([ref for base in bases for ref in find.discover(base)], suite)
    if not refs:
        raise UserError(f"no task is in the suite {suite}", remedy=f"suites are: {', '.join(SUITES)}")
    touched = 0
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for ref in refs:
            if judge.touches(ref.load(), candidate):
                touched += 1
                print(ref.id, flush=True)
    print(f"{touched} of {len(refs)} tasks")
    return 0 if touched else 1
