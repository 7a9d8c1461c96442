"""``passbench explain``: what each pass of a candidate does to a task, and why the others do nothing."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.commands.audit import finding_line

if TYPE_CHECKING:
    from pytest_passbench.core.task import Task
    from pytest_passbench.judge.reading.survey import Matched, Survey

HELP = """Show the graphs of a task with the lines that passes match, the launch plan of each match, and, of the
passes that match nowhere, the nearest place and what was in the way. Equal subgraphs are shown
once. Nothing is judged, and no kernel is run. The exit code is 1 if no pass matches, or if an error or a
violation is shown."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("explain", help="show what passes match in a task, and what not", description=HELP)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder of passes")
    parser.add_argument("task", metavar="TASK", help="an installed task's id, or a task file or sample")
    parser.add_argument("subgraph", nargs="?", metavar="SUBGRAPH", help="only this subgraph")
    parser.add_argument("--policy", choices=("kernels", "open"), default="kernels", help="default: kernels")
    parser.add_argument("--json", action="store_true", help="print JSON, with every subgraph's launch plans")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was matched. Return 1 if that is nothing, or if there is a violation or an error."""
    from pytest_passbench.core.escape import LINES, printable
    from pytest_passbench.judge.reading.survey import survey
    from pytest_passbench.suite import find

    task = only(find.single(args.task).load(), args.subgraph)
    found = survey(args.directory, args.policy, task)
    if args.json:
        told = {
            "matched": [asdict(one) for one in found.matched],
            "plans": [asdict(one) for one in found.plans],
            "findings": [asdict(one) for one in found.findings],
        }
        print(json.dumps(told, indent=1))
    else:
        print(printable("\n".join(render(task, found)), LINES))
    return int(found.faulty or not any(one.places for one in found.matched))


def only(task: Task, subgraph: str | None) -> Task:
    """Return the task with one of its subgraphs, or as it is. Raises UserError if it has none of that id."""
    from dataclasses import replace

    from pytest_passbench.core.errors import UserError

    if subgraph is None:
        return task
    chosen = tuple(one for one in task.subgraphs if one.id == subgraph)
    if not chosen:
        ids = ", ".join(one.id for one in task.subgraphs[:3])
        raise UserError(
            f"{task.id} has no subgraph {subgraph!r}", remedy=f"it has {ids}, ...: `passbench tasks show`"
        )
    return replace(task, subgraphs=chosen)


def render(task: Task, found: Survey) -> Iterator[str]:
    """Yield the lines: per group of subgraphs the graph, the matches with their plans, and the misses."""
    yield from dict.fromkeys(finding_line(finding) for finding in found.findings)  # a kernel's errors come per match
    graphs = {subgraph.id: subgraph.graph for subgraph in task.subgraphs}
    groups: dict[str, list[Matched]] = {}
    for one in found.matched:
        like = json.dumps([graphs[one.subgraph], [asdict(report) for report in one.passes], one.places])
        groups.setdefault(like, []).append(one)
    for alike in groups.values():
        first = alike[0]
        yield ""
        yield f"{graphs[first.subgraph]}: {_named([one.subgraph for one in alike])}"
        yield from _graph(task.graphs[graphs[first.subgraph]], first)
        yield from _plans(found, first)
        yield from _misses(first)
    if not found.matched and not found.findings:
        yield f"the candidate has no passes for {task.id}"


def _named(ids: list[str]) -> str:
    shown = ", ".join(ids[:4])
    return shown if len(ids) <= 4 else f"{shown}, ... ({len(ids)} subgraphs)"


def _graph(source: str, found: Matched) -> Iterator[str]:
    """Yield the graph's text. Before each line stands the number of the match that it belongs to."""
    marks = {node: str(number) for number, (_name, nodes) in enumerate(found.places, 1) for node in nodes}
    for text in source.rstrip().splitlines():
        variable = re.match(r"\s*(\w+)\s*=", text)
        yield f"  {marks.get(variable[1], '') if variable else '':>3} | {text}"


def _plans(found: Survey, one: Matched) -> Iterator[str]:
    from pytest_passbench.plans.words import steps

    plans = [planned for planned in found.plans if planned.subgraph == one.subgraph]
    told: dict[str, list[Any]] = {}
    for planned in plans:
        told.setdefault(planned.name, []).append(planned.plan)
    for number, (name, nodes) in enumerate(one.places, 1):
        yield f"  {number}: {name} replaces {', '.join(nodes)}"
    for name, made in told.items():
        for plan in made:
            yield f"     {name} runs, for {one.subgraph}:"
            yield from (f"       {step}" for step in steps(plan))


def _misses(one: Matched) -> Iterator[str]:
    from pytest_passbench.core import misses

    lines = misses.lines(one.passes)
    if lines:
        yield "  no match:" if one.places else "  no pass matches:"
        yield from (f"    {line}" for line in lines)
