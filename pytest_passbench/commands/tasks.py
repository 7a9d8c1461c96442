"""``passbench tasks``: list, show, validate and check tasks. Their problems are grouped by cause."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pytest_passbench.core.checks import count, share
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Subgraph, TensorSpec
from pytest_passbench.suite import find, summary, workers
from pytest_passbench.suite.find import TaskRef, check_value, discover, installed_tasks, select

MAX_CAUSES = 20
MAX_CHARACTERS = 110  # of a cause or a place on its line
_OWN_NAMES = (
    (r"^subgraph \S+ does not run: (?:\w+ \(\w+\): )?", "does not run: "),
    (r"^graph \S+ has the operators .*", "the header lists other operators than the graph has"),
    (r"^class \w+: ", "an input: "),
    (r"\b(in|tmp)_\d+", r"\1_N"),
    (r"(?<![\w.])\d[\d.]*", "N"),
    (r"N(?:, N)+", "N, ..."),
)


HELP = "List, show, validate or check tasks."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the tasks at a path, one a line")
    listing.add_argument("path", type=Path, nargs="?", metavar="PATH", help="default: the installed tasks")
    listing.add_argument("--suite", metavar="NAME", help="lite, full, train or all (default: full; all of a PATH)")
    listing.add_argument(
        "--op", action="append", default=[], metavar="NAME", help="only tasks with this operator; may be repeated"
    )
    listing.add_argument("--family", metavar="NAME", help="only tasks in a folder of this name")
    listing.add_argument("--modality", metavar="NAME", help="only tasks of this modality")
    listing.add_argument("--json", action="store_true", help="print JSON: counts, and every task's header")
    listing.set_defaults(action=list_tasks)
    showing = actions.add_parser("show", help="a task's code and inputs")
    showing.add_argument("task", metavar="ID|PATH", help="an installed task's id, or a task file or sample")
    showing.set_defaults(action=show)
    checking = actions.add_parser("validate", help="build every graph and run it on fake tensors")
    checking.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="task files, samples, or folders of them"
    )
    checking.add_argument(
        "--processes", type=count, metavar="N", help="how many at a time (default: as many as cores, if it pays)"
    )
    checking.set_defaults(action=validate)
    curating = actions.add_parser("check", help="run every curation rule on every subgraph")
    curating.add_argument("path", type=Path, nargs="?", metavar="PATH", help="default: the installed tasks")
    curating.add_argument("--sample", type=share, default=1.0, metavar="SHARE",
                          help="only the lite suite and this share of the other tasks")  # fmt: skip
    curating.add_argument("--processes", type=count, default=1, metavar="N", help="how many at a time (default: 1)")
    curating.set_defaults(action=check)


def run(args: argparse.Namespace) -> int:
    """Do the action. Return 1 if ``validate`` or ``check`` found a problem, else 0."""
    return int(args.action(args))


def list_tasks(args: argparse.Namespace) -> int:
    """Print the tasks of a suite, one a line, or all headers as JSON."""
    path, suite = (installed_tasks(), "full") if args.path is None else (args.path, "all")
    everything = discover(path)
    _check_filters(everything, args)
    refs = [ref for ref in select(everything, args.suite or suite) if _is_selected(ref, args)]
    subgraphs = sum(r.header.subgraphs for r in refs)
    if args.json:
        tasks = [{**asdict(r.header), "kind": r.kind, "path": str(r.path)} for r in refs]
        counts = summary.counts([ref.load() for ref in refs])
        ids = {ref.id for ref in refs}
        tail = [row for row in summary.load_longtail(path.parent / summary.LONGTAIL_FILE) if row.task in ids]
        counts["long_tail"] = summary.longtail_counts(tail)
        head = {"count": len(refs), "subgraphs": subgraphs, "counts": counts}
        print(json.dumps({**head, "tasks": tasks}, indent=1))
        return 0
    width = max((len(r.id) for r in refs), default=0)
    for ref in refs:
        tags = f"  [{' '.join(ref.header.tags)}]" if ref.header.tags else ""
        print(f"{ref.id:<{width}}  {ref.header.subgraphs:>4}  {' '.join(ref.header.ops)}{tags}")
    # stdout has a line per task, for scripts
    print(f"{counted(len(refs), 'task')}, {counted(subgraphs, 'subgraph')}", file=sys.stderr)
    return 0


def _is_selected(ref: TaskRef, args: argparse.Namespace) -> bool:
    family, modality = args.family in (None, _family(ref)), args.modality in (None, ref.header.modality)
    return family and modality and set(args.op) <= set(ref.header.ops)


def _family(ref: TaskRef) -> str:
    return ref.path.parent.name


def _check_filters(refs: Sequence[TaskRef], args: argparse.Namespace) -> None:
    """Raise UserError for an operator, a family or a modality that no task has, whatever its suite."""
    for name in args.op:
        check_value("operator", name, {op for ref in refs for op in ref.header.ops})
    if args.family is not None:
        check_value("family", args.family, set(map(_family, refs)))
    if args.modality is not None:
        check_value("modality", args.modality, {ref.header.modality for ref in refs})


def show(args: argparse.Namespace) -> int:
    """Print a task's graphs, and the inputs of its subgraphs."""
    task = find.single(args.task).load()
    header = task.header
    print(f"{header.id}: {' '.join(header.ops)}")
    for name, values in (("sources", header.sources), ("tags", header.tags)):
        if values:
            print(f"{name}: {', '.join(values)}")
    if header.headroom:
        print(f"head-room: at most {header.headroom:g} times as fast as eager")
    for key, source in task.graphs.items():
        print(f"\n{key}:\n" + "".join(f"    {line}\n" for line in source.splitlines()), end="")
        for subgraph in task.subgraphs:
            if subgraph.graph == key:
                _show_subgraph(subgraph)
    return 0


def _show_subgraph(subgraph: Subgraph) -> None:
    source = f"  {subgraph.source}" if subgraph.source else ""
    print(f"\n  {subgraph.id} ({subgraph.elements:,} input elements){source}")
    for spec in subgraph.inputs:
        print(f"    {spec.name:<8} {spec.dtype:<9} {list(spec.shape)}  {_statistics(spec)}".rstrip())


def _statistics(spec: TensorSpec) -> str:
    if spec.data is not None:
        values = ", ".join(map(str, spec.data[:8]))
        return f"data [{values}{', ...' if len(spec.data) > 8 else ''}]"
    names = ("mean", "std", "min", "max")
    return " ".join(f"{n} {getattr(spec, n):g}" for n in names if getattr(spec, n) is not None)


def check(args: argparse.Namespace) -> int:
    """Print each complaint of the curation rules, then the counts. Return 1 if there is any complaint, else 0."""
    from pytest_passbench.forge import suite_check

    refs = suite_check.sample(discover(args.path if args.path is not None else installed_tasks()), args.sample)
    complaints = 0
    for complaint in suite_check.check(refs, args.processes):
        print(complaint)
        complaints += 1
    subgraphs = sum(r.header.subgraphs for r in refs)
    print(
        f"{counted(len(refs), 'task')}, {counted(subgraphs, 'subgraph')} checked: {counted(complaints, 'complaint')}"
    )
    return 1 if complaints else 0


def validate(args: argparse.Namespace) -> int:
    """Print the problems of tasks, then the counts and the causes. Return 1 if there is any problem, else 0."""
    members: list[workers.Member] = []
    progress, causes, bad = ProgressLines("validate"), dict[str, list[str]](), 0

    def report(problems: Sequence[UserError]) -> None:
        _count(causes, problems)
        progress.clear()
        for problem in problems:
            print(f"passbench: error: {problem}", file=sys.stderr)

    for path in args.paths:
        try:
            members += find.walk(path)
        except UserError as error:
            report([error])
            bad += 1
    checked = bad + len(members)
    processes = args.processes or workers.default_processes(len(members))
    results = workers.in_order(workers.problems_of, members, processes, "pytest_passbench.suite.validate", chunk=8)
    for number, problems in enumerate(results, 1):
        bad += bool(problems)
        if problems:
            report(problems)
        progress.update(f"{number} of {len(members)} tasks checked, {bad} bad")
    progress.clear()
    print(counted(checked, "task") + (f" checked, {bad} bad" if bad else " valid"))
    for text in _summary(causes):
        print(text)
    return 1 if bad else 0


def cause_of(error: UserError) -> str:
    """Return the fault without what differs from task to task: ids, names of values, numbers."""
    text = error.what
    for pattern, general in _OWN_NAMES:
        text = re.sub(pattern, general, text)
    return line(text, MAX_CHARACTERS)


def _count(causes: dict[str, list[str]], problems: Iterable[UserError]) -> None:
    """Add the place of a task's problems to each of their causes."""
    for cause, problem in {cause_of(problem): problem for problem in problems}.items():
        causes.setdefault(cause, []).append(str(problem.where or ""))


def _summary(causes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield each cause with its number of tasks and an example, the most frequent first."""
    order = sorted(causes, key=lambda cause: (-len(causes[cause]), cause))
    for cause in order[:MAX_CAUSES]:
        yield f"{len(causes[cause]):>6}  {cause}"
        yield f"        such as {line(causes[cause][0], 1_000)}"
    if more := order[MAX_CAUSES:]:
        yield f"{sum(len(causes[cause]) for cause in more):>6}  {counted(len(more), 'further cause')}"
