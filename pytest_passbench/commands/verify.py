"""``passbench verify``: a check that a results file is as a run wrote it, for these tasks and this candidate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.commands.results import add_file
from pytest_passbench.core.checks import whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import printable
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.task import Task
from pytest_passbench.run import agreement, consistency, results_file
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef, edition_of
from pytest_passbench.suite.taskfile import task_hash

HELP = "Check that a results file is as a run wrote it, for these tasks and this candidate."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, metavar="RESULTS")
    parser.add_argument("--candidate", type=Path, metavar="DIR", help="the candidate that was judged")
    parser.add_argument("--tasks", type=Path, action="append", metavar="PATH",
                        help="task files or folders (default: those of the run, or the installed ones)")  # fmt: skip
    parser.add_argument("--rerun", type=whole(0, 100_000), default=0, metavar="K",
                        help="judge K random subgraphs anew")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the problems. Return 1 if there is any, else 0."""
    stored = results_file.read(args.file)
    candidate = Candidate.open(args.candidate) if args.candidate is not None else None
    if args.rerun and candidate is None:
        remedy = "add --candidate=DIR"
        raise UserError("judging anew takes the candidate itself", where="--rerun", remedy=remedy)
    refs = refs_of(stored, args.tasks)
    tasks = {ref.id: ref.load() for ref in refs if ref.id in stored.tasks}
    texts = list(problems(stored, refs, tasks, candidate))
    sampled: list[Record] = []
    if args.rerun and candidate is not None and not texts:
        sampled = agreement.sample(stored, tasks, candidate, args.rerun)
        texts += agreement.disagreements(stored, tasks, candidate, sampled, absent_of(stored, refs))
    for text in texts:
        print(printable(text))
    if texts:
        print(counted(len(texts), "problem"))
    else:
        print(printable(_summary(stored, refs, tasks, candidate, len(sampled) if args.rerun else None)))
    return int(bool(texts))


def refs_of(stored: Run, paths: list[Path] | None) -> list[TaskRef]:
    """Return the tasks at ``paths``, or else where the run found them; the first one of each id."""
    task_paths = [Path(str(path)) for path in stored.settings.get("tasks") or []]
    bases = paths or [path for path in task_paths if kind_of(path)] or [find.installed_tasks()]
    refs = {ref.id: ref for base in reversed(bases) for ref in reversed(find.discover(base))}
    return list(reversed(refs.values()))


def absent_of(stored: Run, refs: list[TaskRef]) -> list[TaskRef]:
    """Return the tasks that a run of matching tasks only may have left out."""
    names = consistency.left_out(stored, refs)
    return [ref for ref in refs if ref.id in names]


def problems(stored: Run, refs: list[TaskRef], tasks: dict[str, Task], candidate: Candidate | None) -> Iterator[str]:
    """Yield each way in which the results do not fit the tasks, the candidate or this code, in words."""
    editions = sorted({edition for task in tasks.values() if (edition := edition_of(task.path))})
    contents = {name: task_hash(task) for name, task in tasks.items()}
    yield from consistency.problems(stored, tasks, contents, editions)
    yield from consistency.selection_problems(stored, refs)
    missing = [name for name in stored.tasks if name not in tasks]
    if missing:
        yield f"tasks not found, so not checked: {', '.join(missing[:5])} (name their folder with --tasks)"
    harness = stored.hashes.get("harness")
    if harness != harness_hash():
        yield "the run was made with other code of passbench than this" if harness else "no hash of the harness"
    if candidate is not None:
        yield from _of_candidate(stored, candidate)


def _of_candidate(stored: Run, candidate: Candidate) -> Iterator[str]:
    if candidate.content_hash not in [item.get("content_hash") for item in stored.candidates]:
        text = "not the candidate that was judged; its contents differ (name that one with --candidate=DIR)"
        yield f"{candidate.path}: {text}"
    listed = [item.get("name") for item in stored.candidates]
    for name in stored.names:
        if name not in listed:
            yield f"it has records of {name}, which is not among its candidates"


def _summary(
    stored: Run, refs: list[TaskRef], tasks: dict[str, Task], candidate: Candidate | None, rerun: int | None
) -> str:
    """Return what fits, and what was not checked. ``rerun``: the number of subgraphs judged anew; None: not asked."""
    records, absent = counted(len(stored.records), "record"), len(consistency.left_out(stored, refs))
    parts = [
        f"digest, {'seeds of all parts' if stored.parts else 'seed'} and speed-ups fit",
        f"{records} of {counted(len(tasks), 'task')} complete ({consistency.described(stored)})",
    ]
    if absent:
        how = "no pass matches, by the file's word (--rerun looks)" if rerun is None else "no pass matches"
        parts.append(f"{counted(absent, 'task')} left out that {how}")
    if candidate is not None:
        same = [item["name"] for item in stored.candidates if item.get("content_hash") == candidate.content_hash]
        others = [name for name in stored.names if name not in same]
        parts.append(f"the candidate is the one judged as {', '.join(same)}")
        parts += [f"candidates not checked: {', '.join(others)}"] if others else []
    if rerun is not None:
        parts.append(counted(rerun, "subgraph judged anew agrees", "subgraphs judged anew agree"))
        parts += [f"baselines not judged anew: {', '.join(stored.baselines)}"] if stored.baselines else []
    return "; ".join(parts)
