"""``passbench new``: a first pass for a task, fused, to begin from."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.suite import find

if TYPE_CHECKING:
    from pytest_passbench.first_pass.choose import RequestedRun

HELP = """Write a pass for a task: a pattern that matches the task's graphs, or the largest run of their operators
that the generator has kernels for, and these kernels in C++ or Triton. They are fused, round as eager does, and
are there to be read and changed. The pass is added to those that the folder lists already."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("task", metavar="TASK", help="an installed task's id, or a task file or sample")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the candidate's folder, made if there is none")
    parser.add_argument("--triton", action="store_true", help="write the kernel in Triton")
    parser.add_argument(
        "--operators", type=lines, metavar="N..M", help="match tmp_N to tmp_M, as 'passbench tasks show' numbers them"
    )
    parser.add_argument("--ops", type=names, metavar="A,B", help="match the first run of these operators: relu,add")
    parser.add_argument("--force", action="store_true", help="overwrite files of the same names")


def lines(text: str) -> tuple[int, int]:
    """Return the first and the last line of ``N..M``, or of ``N`` alone."""
    match = re.fullmatch(r"(\d{1,4})(?:\.\.(\d{1,4}))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{line(text)!r} is no run of lines: write 0..3")
    return int(match[1]), int(match[2] or match[1])


def names(text: str) -> tuple[str, ...]:
    """Return the operators of ``relu,add``."""
    operators = tuple(part.strip() for part in text.split(","))
    if not all(operators):
        raise argparse.ArgumentTypeError(f"{line(text)!r} is no list of operators: write relu,add")
    return operators


def run(args: argparse.Namespace) -> int:
    """Write the pass, and say what it matches."""
    if args.operators and args.ops:
        raise UserError("--operators and --ops both name the run", remedy="give one of them")
    ref = find.single(args.task)
    # The generator imports torch, which takes seconds: a misspelt task is named before.
    from pytest_passbench.first_pass.write import draft, write

    first_draft = draft(ref.load(), args.triton, _requested(args))
    paths = write(first_draft, args.folder, args.force)
    print(first_draft.text())
    print("wrote " + ", ".join(str(path) for path in paths))
    place = f"--passbench-task={ref.id}" if args.task == ref.id else args.task
    print(f"judge it: pytest --passbench --candidate={args.folder} --passbench-pipeline=direct {place}")
    return 0


def _requested(args: argparse.Namespace) -> RequestedRun | None:
    from pytest_passbench.first_pass.choose import RequestedRun

    if args.operators:
        return RequestedRun(*args.operators)
    return RequestedRun(operators=args.ops) if args.ops else None
