"""``passbench trajectories``: what models did in Inspect logs, as Parquet to train from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.checks import whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import writing
from pytest_passbench.core.plurals import counted

HELP = """Write the trajectories of passbench agent as Parquet: messages, tool calls, files and rewards. Equal
answers count once. Needs the extras agents and dataset. docs/training.md has the columns."""

if TYPE_CHECKING:
    from pytest_passbench.agents.trajectories import Trajectory

FORMATS = ("raw", "sft", "single", "dpo", "rl", "passnet")
CORRECT = {"ladder": "correct", "fp64": "correct_fp64"}
"""The name, by criterion, of the score that is the share of right subgraphs."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOGS", help="logs of Inspect, or folders of them")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--format", choices=FORMATS, default="raw", help="all of it, conversations up to the best "
                        "attempt, best answers in one turn, pairs of answers, prompts with rewards, or PassNet's "
                        "lines of JSON (default: raw)")  # fmt: skip
    parser.add_argument("--best-of", type=whole(1, 10**6), metavar="K", help="of each task the K with the highest "
                        "rewards (default: all)")  # fmt: skip
    parser.add_argument("--min-reward", type=float, metavar="R", help="only those whose best attempt has R at least")
    parser.add_argument("--right", choices=CORRECT, help="only those whose best attempt is right by this criterion")
    parser.add_argument("--honest", action="store_true", help="only those without an attempt that broke a rule")


def run(args: argparse.Namespace) -> int:
    """Write the file, print the counts, and return the exit code."""
    try:
        import pyarrow  # noqa: F401

        from pytest_passbench.agents import trajectories

        everything = list(trajectories.read_trajectories(args.logs))
    except ImportError as error:
        remedy = "pip install 'pytest-passbench[agents,dataset]'"
        raise UserError(f"passbench trajectories needs {error.name}", remedy=remedy) from error
    selection = trajectories.distinct(item for item in everything if _passes(item, args))
    if args.best_of is not None:
        selection = trajectories.best_of(args.best_of, selection)
    rows = list(trajectories.FORMATS[args.format](selection))
    if not rows:
        raise UserError(f"no row is left of {counted(len(everything), 'trajectory', 'trajectories')}",
                        remedy="ask for less: --min-reward, --right, --honest")  # fmt: skip
    with writing(args.out):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write = trajectories.write_lines if args.format == "passnet" else trajectories.write_rows
        write(rows, args.out)
    print(f"{args.out}: {counted(len(rows), 'row')} of {counted(len(selection), 'trajectory', 'trajectories')} "
          f"({len(everything)} in the logs)")  # fmt: skip
    return 0


def _passes(item: Trajectory, args: argparse.Namespace) -> bool:
    """Return True if a trajectory is what the options ask for."""
    if args.honest and not item.honest:
        return False
    if args.min_reward is None and args.right is None:
        return True
    if not item.attempts:
        return False
    right = args.right is None or item.best["scores"][CORRECT[args.right]] == 1
    return right and (args.min_reward is None or item.best["reward"] >= args.min_reward)
