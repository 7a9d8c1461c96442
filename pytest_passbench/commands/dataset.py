"""``passbench dataset``: build a data set of graphs, look at it, check it, and make tasks of its rows."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from pytest_passbench.commands.own_model import without_logs
from pytest_passbench.core.checks import count, duration, seconds, whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.dataset import KINDS, SPLITS, shards, splits, summary
from pytest_passbench.dataset import build as building
from pytest_passbench.dataset.architectures import libraries
from pytest_passbench.dataset.extract import tasks_of
from pytest_passbench.dataset.rows import GraphRow, text_hash
from pytest_passbench.forge.curate import write_tasks
from pytest_passbench.report.drawing import as_file
from pytest_passbench.suite.find import discover, installed_tasks

HELP = "Build a data set of unique graphs from configurations, look at it, and make tasks of its rows."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    building = actions.add_parser("build", help="capture architectures, or go on with it, and write the shards")
    building.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the data set")
    building.add_argument("--sources", default="", metavar="LIST", help="only these libraries, with commas between")
    building.add_argument("--also", type=Path, action="append", default=[], metavar="FILE.py",
                          help="a file with your own LIBRARY, LICENSE and cases(); repeatable")  # fmt: skip
    _add_held_out(building)
    building.add_argument("--budget", type=duration, default=math.inf, metavar="TIME",
                          help="begin nothing later than this: 90s, 30m, 2h (default: no limit)")  # fmt: skip
    building.add_argument("--processes", type=count, default=1, metavar="N", help="how many at a time (default: 1)")
    building.add_argument("--timeout", type=seconds, default=200.0, metavar="S", help="seconds for one architecture")
    building.set_defaults(action=build)
    for name, action, text in (
        ("stats", stats, "counts by kind, split and library"),
        ("check", check, "look for rows that stand in two splits, and for ids that are not the text's"),
        ("sample", sample, "rows drawn by chance, one JSON object a line"),
        ("show", show, "a row's graph and inputs"),
        ("to-tasks", to_tasks, "make a task file of each row that passes the suite's rules"),
    ):
        action_parser = actions.add_parser(name, help=text)
        action_parser.add_argument("path", type=Path, metavar="DIR", help="the folder of the data set")
        action_parser.set_defaults(action=action)
        if action is check:
            _add_held_out(action_parser)
        if action is stats:
            action_parser.add_argument("--json", action="store_true", help="print JSON, with the curve")
        elif action is show:
            action_parser.add_argument("id", metavar="ID", help="a row's id, or the beginning of one")
        elif action is not check:
            _add_filters(action_parser)
            if action is to_tasks:
                action_parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the tasks' folder")


def _add_held_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--held-out", type=Path, metavar="DIR",
                        help="the tasks whose graphs are the test split (default: the installed suite)")  # fmt: skip


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", type=whole(1, 10**9), default=10, metavar="N", help="how many rows (default: 10)")
    parser.add_argument("--split", choices=SPLITS, help="only rows of this split")
    parser.add_argument("--kind", choices=KINDS, help="only graphs of this kind")
    parser.add_argument("--op", metavar="NAME", help="only graphs with this operator")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Do the action. Return 1 if ``check`` found a fault, else 0."""
    torch.set_num_threads(1)
    return int(args.action(args))


def build(args: argparse.Namespace) -> int:
    """Build or go on, write the shards and the card, and print the counts."""
    shards.arrow()  # before hours of work
    names = [name for name in args.sources.split(",") if name]
    settings = building.BuildSettings(args.out, args.processes, args.timeout, args.budget)
    progress = ProgressLines("dataset")
    building.restore_captures(args.out, settings.captures)
    with without_logs():
        building.build(libraries(names, args.also), settings, progress)
        progress.stage("writing the shards")
        rows = building.merged(case for _, case in building.cases(settings.captures))
        splits.assign(rows, splits.held_out(ref.load() for ref in discover(args.held_out or installed_tasks())))
    if not rows:
        remedy = f"see the reasons in its {building.CAPTURES}/*.failed"
        raise UserError("no architecture was captured", where=args.out, remedy=remedy)
    shards.write(rows, args.out)
    building.write_table(settings.captures, args.out)
    counts = summary.summarise(rows, settings.captures)
    summary.save(counts, args.out)
    write_text(args.out / summary.CURVE_FILE, as_file(summary.chart(counts.curve), summary.PIXELS, summary.INCHES))
    write_text(args.out / "README.md", summary.card(counts))
    progress.clear()
    print("\n".join(summary.lines(counts)))
    return 0


def stats(args: argparse.Namespace) -> int:
    """Print the counts."""
    counts = summary.read(args.path)
    print(json.dumps(asdict(counts), indent=1) if args.json else "\n".join(summary.lines(counts)))
    return 0


def check(args: argparse.Namespace) -> int:
    """Print what is wrong with the rows. Return 1 if anything is."""
    rows = list(shards.read(args.path))
    with without_logs():
        apart = splits.held_out(ref.load() for ref in discover(args.held_out or installed_tasks()))
    faults = [f"row {row.id}: its text has the hash {text_hash(row.source)}"
              for row in rows if row.id != text_hash(row.source)]  # fmt: skip
    faults += [f"row {key}: {count} rows have this id"
               for key, count in Counter(row.id for row in rows).items() if count > 1]  # fmt: skip
    faults += splits.leaks(rows, apart)
    print(
        "".join(f"{fault}\n" for fault in faults)
        + f"{counted(len(rows), 'row')} checked, {counted(len(faults), 'fault')}"
    )
    return 1 if faults else 0


def sample(args: argparse.Namespace) -> int:
    """Print rows as JSON lines."""
    for row in _drawn(args):
        print(json.dumps(asdict(row), sort_keys=True))
    return 0


def show(args: argparse.Namespace) -> int:
    """Print a row. Raises UserError unless the id of exactly one row begins with the argument."""
    rows = [row for row in shards.read(args.path) if row.id.startswith(args.id)]
    if len(rows) != 1:
        raise UserError(f"{counted(len(rows), 'row')} of {args.path} begin with {args.id!r}", where="ID",
                        remedy="passbench dataset sample prints rows with their ids")  # fmt: skip
    (row,) = rows
    print(f"{row.id}: {row.kind} graph of {row.architecture} ({row.configuration}), {row.split}\n\n{row.source}")
    for data in row.inputs:
        spread = "" if data["mean"] is None else f"  mean {data['mean']}, std {data['std']}"
        print(f"{data['name']}: {data['dtype']} {data['shape']}{spread}")
    print(f"form {row.form}; {counted(len(row.instances), 'other instance')}; families: {', '.join(row.families)}")
    if row.marks:
        print(f"breaks as recorded: {', '.join(row.marks)}")
    return 0


def to_tasks(args: argparse.Namespace) -> int:
    """Write a task file for each operator sequence of the drawn rows. Say which rows the rules refuse, and why."""
    with without_logs():
        tasks, refused = tasks_of(_with_progress(list(_drawn(args))))
    for path in write_tasks(tasks, args.out):
        print(path)
    for key, refusal in refused.items():
        print(f"row {key}: {refusal}")
    rows = counted(sum(len(task.subgraphs) for task in tasks), "row")
    print(f"{counted(len(tasks), 'task')} made of {rows}; the rules refused {len(refused)}")
    return 0


def _with_progress(rows: Sequence[GraphRow]) -> Iterator[GraphRow]:
    """Yield the rows, and say how far the work has come: each is run for the rules."""
    with ProgressLines("dataset to-tasks") as progress:
        for number, row in enumerate(rows, 1):
            progress.update(f"row {number} of {len(rows)}")
            yield row


def _drawn(args: argparse.Namespace) -> Iterator[GraphRow]:
    rows = [
        row
        for row in shards.read(args.path, args.split)
        if args.kind in (None, row.kind) and (args.op is None or args.op in row.operators)
    ]
    if not rows:
        raise UserError("has no such rows", where=args.path, remedy="ask for other kinds, splits or operators")
    yield from random.Random(args.seed).sample(rows, min(args.n, len(rows)))
