"""``passbench forge``: make tasks from models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from pytest_passbench.commands import own_model
from pytest_passbench.commands.own_model import HUB_HELP, MODEL_HELP, SPECS
from pytest_passbench.core.checks import count, seconds, whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated, line
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Task
from pytest_passbench.forge import model_tasks, remake, sources
from pytest_passbench.forge.curate import write_tasks
from pytest_passbench.forge.model_tasks import ModelTasks
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.remake import Recipe
from pytest_passbench.suite.find import discover

STEPS = ("capture", "windows", "select", "curate", "write")
DEFAULT_STEPS = ",".join(STEPS)
EXAMPLES = """\
an own model, whose inputs are floats of batch x size x 64 and token ids from 0 to 999:
  passbench forge --model model.py:Block --input="float b n 64" --input="int1000 b n" --size=4,128 --out=mytasks
"""


HELP = "Make tasks from models."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog, parser.formatter_class = EXAMPLES + SPECS, argparse.RawDescriptionHelpFormatter
    # fmt: off
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--model", metavar="FILE.py:NAME", help=MODEL_HELP)
    source.add_argument("--hub", metavar="ID|DIR", help=HUB_HELP)
    source.add_argument("--verify", action="append", metavar="NAME",
                        help="capture this architecture anew: does it give the tasks at --out again? repeatable")
    source.add_argument("--all", action="store_true", help="make the suite from all architectures that are here")
    source.add_argument("--list", action="store_true", help="the architectures that can be captured here")
    own_model.add_inputs(parser, "--model")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="only this library or library/architecture; repeatable")
    parser.add_argument("--steps", default=DEFAULT_STEPS, metavar="LIST",
                        help=f"of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--tasks", type=whole(0, 100_000), default=0, metavar="N",
                        help="how many tasks (default: 200, or 3 with --model and --hub)")
    parser.add_argument("--train", type=whole(0, 100_000), default=0, metavar="N",
                        help="that many more, tagged train")
    parser.add_argument("--work", type=Path, default=Path("build/forge"), metavar="DIR",
                        help="where steps keep what they made (default: build/forge)")
    parser.add_argument("--out", type=Path, default=Path("tasks"), metavar="DIR", help="default: tasks")
    parser.add_argument("--layout", choices=("task", "published"), default="task", help="form of the output")
    parser.add_argument("--processes", type=count, default=1, metavar="N", help="how many at a time (default: 1)")
    parser.add_argument("--timeout", type=seconds, default=200.0, metavar="S", help="seconds for one job")
    # fmt: on


def run(args: argparse.Namespace) -> int:
    """Make the tasks and print their paths, or do what another option asks."""
    if not args.model:
        own_model.refuse_inputs(args)
    torch.set_num_threads(1)
    with own_model.without_logs():
        if args.list:
            return list_cases()
        if args.verify:
            return verify(args)
        if args.model or args.hub:
            return make_from_model(args)
        if not args.all and not args.only and args.steps == DEFAULT_STEPS:
            raise would_do(args)
        return make_suite(args)


def would_do(args: argparse.Namespace) -> UserError:
    """Return the message for a command line that would begin the whole suite without asking for it."""
    cases = sources.all_cases()
    hours = len(cases) * args.timeout / args.processes / 3600
    tasks, models = counted(args.tasks or 200, "task"), counted(len(cases), "architecture")
    output = f"{tasks} in {args.out}, from {models}, by the steps {args.steps}"
    long = f"up to {args.timeout:g} s for each architecture, {hours:.1f} hours in all, before the other steps"
    remedy = "add --all to begin; --only=NAME, --model or --hub make fewer; --list names the architectures"
    return UserError(f"would make {output}: {long}", where="forge", remedy=remedy)


def list_cases() -> int:
    """Print a line per architecture that can be captured here."""
    for case in sources.all_cases():
        print(f"{case.name}  {case.modality}  {' '.join(v.label for v in case.variants)}")
    return 0


def verify(args: argparse.Namespace) -> int:
    """Print a line per architecture. Return 1 if a committed subgraph was not made again, else 0."""
    tasks = [ref.load() for ref in discover(args.out)]
    results = [remake.verify(case, tasks) for case in sources.pick(args.verify)]
    for result in results:
        total = result.same + len(result.missing)
        print(f"{result.case}: {result.same} of {total} subgraphs have the same hash")
        print(*(f"  not made again: {name}" for name in result.missing), sep="\n", end="\n" if result.missing else "")
    return 1 if any(result.missing for result in results) else 0


def make_from_model(args: argparse.Namespace) -> int:
    """Make tasks from one model of the user's or of a hub."""
    if kind_of(args.out) not in (None, "folder"):
        raise UserError(f"{args.out} is no folder", where="--out", remedy="name a folder, which may be new")
    case, remedy = own_model.case_of(args)
    with ProgressLines("forge") as progress:
        result = model_tasks.make(case, args.tasks or 3, progress, remedy)
    if not result.tasks:
        raise none_made(case.name, result)
    code = _write(args, result.tasks)
    for text in shortfall(result):
        print(text)
    print(f"judge passes on them with: pytest --passbench --candidate=DIR {args.out}")
    return code


def none_made(name: str, result: ModelTasks) -> UserError:
    """Return the message for a model of which no task could be made: how many runs each rule refused, and why."""
    if not result.refused:
        remedy = "name a module that computes with tensors, and without torch.compiler.disable"
        return UserError("torch.compile captures no two connected operators of it", where=name, remedy=remedy)
    why = "; ".join(f"{rule} {count}, such as {example}" for rule, count, example in result.by_rule())
    what = f"no task: {_runs(len(result.refused))} refused, by rule: {why}"
    return UserError(what, where=name, remedy=_remedy(result))


def shortfall(result: ModelTasks) -> Iterator[str]:
    """Yield lines that say why fewer tasks were made than asked for; no line if all were made."""
    if len(result.tasks) >= result.requested:
        return
    head = f"asked for {counted(result.requested, 'task')}, made {len(result.tasks)}"
    if not result.refused:
        yield f"{head}: the model has no further run of operators"
        return
    rules = result.by_rule()
    counts = ", ".join(f"{rule} {count}" for rule, count, _ in rules)
    yield f"{head}: {_runs(len(result.refused))} refused, by rule: {counts}"
    for rule, _, example in rules:
        yield f"  {rule}: {line(example)}"
    yield f"  {_remedy(result)}"


def _runs(count: int) -> str:
    return counted(count, "run of operators was", "runs of operators were")


def _remedy(result: ModelTasks) -> str:
    if result.by_rule()[0][0] in ("eager_time", "elements"):
        return "give it other inputs: by --size, or in example_inputs(); docs/suite.md explains the rules"
    return "docs/suite.md explains the rules"


def make_suite(args: argparse.Namespace) -> int:
    """Do the wanted steps of making a suite."""
    steps = _steps(args.steps)
    cases = _cases(args.only) if "capture" in steps else []
    tasks = Recipe(args.work, args.processes, args.timeout).tasks(steps, cases, args.tasks or 200, args.train)
    return _write(args, tasks) if "write" in steps else 0


def _write(args: argparse.Namespace, tasks: list[Task]) -> int:
    for path in write_tasks(tasks, args.out, args.layout):
        print(path)
    subgraphs = sum(task.header.subgraphs for task in tasks)
    print(f"{counted(len(tasks), 'task')}, {counted(subgraphs, 'subgraph')}")
    return 0


def _cases(only: list[str]) -> list[ModelCase]:
    cases = [c for c in sources.all_cases() if not only or c.name in only or c.name.partition("/")[0] in only]
    if not cases:
        raise UserError(f"no architecture {' or '.join(only)}", remedy="see `passbench forge --list`")
    return cases


def _steps(text: str) -> list[str]:
    names = [step for step in text.split(",") if step]
    unknown = [step for step in names if step not in STEPS]
    if unknown or not names:
        what = f"no step {abbreviated(unknown[0])}" if unknown else "names no step"
        raise UserError(what, where="--steps", remedy=f"steps are: {', '.join(STEPS)}")
    return names
