"""``passbench verify``: a check that a results file is as a run wrote it, for these tasks and this candidate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.commands.results import add_file
from pytest_passbench.core.checks import whole
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import printable
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.plurals import counted

if TYPE_CHECKING:
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.run import Run
    from pytest_passbench.core.task import Task


HELP = "Check that a results file is as a run wrote it, for these tasks and this candidate."


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("verify", help="check a results file, and judge some of it anew",
                                   description=HELP)  # fmt: skip
    add_file(parser, metavar="RESULTS")
    parser.add_argument("--candidate", type=Path, metavar="DIR", help="the candidate that was judged")
    parser.add_argument("--tasks", type=Path, action="append", metavar="PATH",
                        help="task files or folders (default: those of the run, or the installed ones)")  # fmt: skip
    parser.add_argument("--rerun", type=whole(0, 100_000), default=0, metavar="K",
                        help="judge K random subgraphs anew")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the problems. Return 1 if there is any, else 0."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.run import results_file

    judged_run = results_file.read(args.file)
    candidate = Candidate.open(args.candidate) if args.candidate is not None else None
    if args.rerun and candidate is None:
        remedy = "add --candidate=DIR"
        raise UserError("judging anew takes the candidate itself", where="--rerun", remedy=remedy)
    tasks = tasks_of(judged_run, args.tasks)
    findings = list(problems(judged_run, tasks, candidate))
    if args.rerun and candidate is not None and not findings:
        from pytest_passbench.run.rerun import disagreements

        findings += disagreements(judged_run, tasks, candidate, args.rerun)
    for text in findings:
        print(printable(text))
    print(_summary(judged_run, tasks, candidate, args.rerun) if not findings else counted(len(findings), "problem"))
    return int(bool(findings))


def tasks_of(judged_run: Run, paths: list[Path] | None) -> dict[str, Task]:
    """Return the run's tasks that can be found, by id."""
    from pytest_passbench.suite import find

    task_paths = [Path(str(path)) for path in judged_run.settings.get("tasks") or []]
    bases = paths or [path for path in task_paths if kind_of(path)] or [find.installed_tasks()]
    refs = [ref for base in bases for ref in find.discover(base)]
    return {ref.header.id: ref.load() for ref in refs if ref.header.id in judged_run.tasks}


def problems(judged_run: Run, tasks: dict[str, Task], candidate: Candidate | None) -> Iterator[str]:
    """Yield each way in which the results do not fit the tasks, the candidate or this code, in words."""
    from pytest_passbench.run import consistency
    from pytest_passbench.run.hashes import of_harness
    from pytest_passbench.suite.edition import edition_of
    from pytest_passbench.suite.taskfile import task_hash

    counts = {name: expected_subgraphs(judged_run, task, candidate) for name, task in tasks.items()}
    editions = sorted({edition for task in tasks.values() if (edition := edition_of(task.path))})
    contents = {name: task_hash(task) for name, task in tasks.items()}
    yield from consistency.problems(judged_run, counts, contents, editions)
    missing = [name for name in judged_run.tasks if name not in tasks]
    if missing:
        yield f"tasks not found, so not checked: {', '.join(missing[:5])} (name their folder with --tasks)"
    harness = judged_run.hashes.get("harness")
    if harness != of_harness():
        yield "the run was made with other code of passbench than this" if harness else "no hash of the harness"
    if candidate is not None:
        listed = [item.get("content_hash") for item in judged_run.candidates]
        if candidate.content_hash not in listed:
            yield f"{candidate.path}: not the candidate that was judged (its contents differ)"


def expected_subgraphs(judged_run: Run, task: Task, candidate: Candidate | None) -> int:
    """Return the number of subgraphs of a task that were to be judged; fewer if Triton's interpreter runs them."""
    triton = judged_run.interpreted(task.id) or (candidate is not None and candidate.uses_triton)
    if triton and not is_cuda(str(judged_run.settings.get("device", "cpu"))):
        return len({subgraph.dtype for subgraph in task.subgraphs})
    return len(task.subgraphs)


def _summary(judged_run: Run, tasks: dict[str, Task], candidate: Candidate | None, rerun: int) -> str:
    parts = [
        "digest, seed and speed-ups fit",
        f"{counted(len(judged_run.records), 'record')} of {counted(len(tasks), 'task')} complete",
    ]
    parts += ["the candidate is the one judged"] if candidate is not None else []
    parts += (
        [counted(min(rerun, len(judged_run.records)), "subgraph judged anew agrees", "subgraphs judged anew agree")]
        if rerun
        else []
    )
    return "; ".join(parts)
