"""The selection of tasks, if pytest itself was given no paths to walk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.paths import INSTALLED
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.settings import Settings
from pytest_passbench.plugin.nodeid import node_path, parse, split
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef, did_you_mean


@dataclass(frozen=True)
class TaskNode:
    """A task to collect: its node id's path, and which of its items (None: all of them).

    ``ref`` is an error if the file could not be read.
    """

    path: Path
    ref: TaskRef | UserError
    node: str
    item: str | None = None


@dataclass(frozen=True)
class Selection:
    """The tasks found by this plugin. ``from_paths``: pytest walks the paths of the command line instead.

    ``ids``: the ids of all that was found, chosen or not.
    """

    tasks: tuple[TaskNode, ...] = ()
    ids: frozenset[str] = frozenset()
    total: int = 0
    from_paths: bool = False
    #: The tasks that were found and not chosen.
    others: tuple[TaskNode, ...] = ()
    #: The number of chosen tasks that are not in the suite, and are here since they failed last.
    failed: int = 0

    @cached_property
    def costs(self) -> dict[str, int]:
        """The cost of judging each chosen task, in subgraphs, by its path in node ids."""
        return {task.node: cost(task.ref) for task in self.tasks}

    def describe(self, settings: Settings) -> str:
        """Return the selection in words, for the header."""
        suite = settings.suite
        if settings.task_ids and not self.from_paths:
            return f"tasks: {', '.join(task.ref.id for task in self.tasks if not isinstance(task.ref, UserError))}"
        if self.from_paths:
            return "suite: the paths given" + ("" if suite == "all" else f", those tagged {suite}")
        hint = "; --passbench-suite=full for all" if suite == "lite" else ""
        failed = f", and {self.failed} more that failed last" if self.failed else ""
        return f"suite: {suite} ({len(self.tasks) - self.failed} of {self.total} tasks{hint}){failed}"

    def with_failed(self, nodes: Collection[str]) -> Selection:
        """Return the selection with the tasks at these paths of node ids too, whatever their suite."""
        more = tuple(task for task in self.others if task.node in nodes)
        return replace(self, tasks=self.tasks + more, failed=len(more))

    def remedy(self, settings: Settings, keyword: str) -> str:
        """Return a line for a run in which no task was left, by ``-k keyword`` or by the lite suite; else ""."""
        if self.from_paths or settings.task_ids or settings.suite != "lite":
            if not keyword or not self.tasks:
                return ""
            fits = f"-k {abbreviated(keyword)} matches none of {counted(len(self.tasks), 'task')}"
            return f"{fits} (leave it out, or look for another word in 'passbench tasks list')"
        name = keyword if keyword in self.ids else "ID"
        remedy = f"add --passbench-suite=full for all {self.total} tasks, or name one: --passbench-task={name}"
        return f"no task of the lite suite was selected ({remedy})"


def select(settings: Settings, rootpath: Path, args: Sequence[str], invocation: Path) -> Selection:
    """Return the tasks that the settings and ``args``, the paths on the command line, ask for.

    Node ids of installed tasks (``tasks/...``) are understood although no such path exists. Raises UserError if a
    path of ``--passbench-tasks`` has no tasks, or if ``args`` name a path or a task that does not exist.
    """
    if args and not _are_installed_ids(args, invocation):
        return Selection(from_paths=True)
    bases = [find.installed_tasks()] if args or not settings.tasks else list(settings.tasks)
    tasks = [TaskNode(path, ref, node_path(path, base, rootpath)) for base in bases for path, ref in discover(base)]
    selected = _matching(tasks, args) if args else _of_suite(tasks, settings)
    ids = frozenset(task.ref.id for task in tasks if not isinstance(task.ref, UserError))
    judged = [task for task in tasks if settings.suite not in ("lite", "full") or _tagged(task, "full")]
    nodes = {task.node for task in selected}
    others = tuple(task for task in tasks if task.node not in nodes)
    return Selection(tuple(selected), ids, len(judged), others=others)


def cost(ref: TaskRef | UserError) -> int:
    """Return the cost of judging a task, in subgraphs. A faulty one costs as much as one subgraph."""
    return 1 if isinstance(ref, UserError) else ref.header.subgraphs


def known_ids(paths: Iterable[Path]) -> frozenset[str]:
    """Return the ids of the installed tasks, and of those at ``paths``."""
    bases = [find.installed_tasks(), *(path for path in paths if kind_of(path))]
    refs = [ref for base in bases for _, ref in discover(base)]
    return frozenset(ref.id for ref in refs if not isinstance(ref, UserError))


def discover(base: Path) -> list[tuple[Path, TaskRef | UserError]]:
    """Return the tasks at a path. One that cannot be read comes with its error, so that it fails alone.

    Raises UserError if there are no tasks.
    """
    try:
        return [(ref.path, ref) for ref in find.discover(base)]
    except UserError:
        return [(path, read(path)) for path, _ in find.walk(base)]


def read(path: Path) -> TaskRef | UserError:
    """Return the one task at a path, or the error that says why it has no task."""
    try:
        return find.discover(path)[0]
    except UserError as error:
        return error


def _of_suite(tasks: Sequence[TaskNode], settings: Settings) -> list[TaskNode]:
    if not settings.task_ids:
        return [task for task in tasks if _tagged(task, settings.suite)]
    nodes = {task.path: task for task in tasks}
    refs = [task.ref for task in tasks if not isinstance(task.ref, UserError)]
    return [nodes[ref.path] for ref in find.named(refs, settings.task_ids)]


def _tagged(task: TaskNode, suite: str) -> bool:
    return isinstance(task.ref, UserError) or bool(find.select([task.ref], suite))


def _are_installed_ids(args: Iterable[str], invocation: Path) -> bool:
    paths = [split(arg)[0] for arg in args]
    return all(Path(path).parts[:1] == (INSTALLED,) and not kind_of(invocation / path) for path in paths)


def _matching(tasks: Sequence[TaskNode], args: Sequence[str]) -> list[TaskNode]:
    matches = []
    for arg in args:
        path, item = split(arg)
        prefix = Path(path)
        hits = [task for task in tasks if Path(task.node).is_relative_to(prefix)]
        if not hits:
            near = did_you_mean(path, [task.node for task in tasks])
            raise UserError("no such path, and no such installed task", where=arg,
                            remedy=f"{near}`passbench tasks list` names them")  # fmt: skip
        ids = [hit.ref.id for hit in hits if not isinstance(hit.ref, UserError)]
        if item and ids and parse(arg).task not in ids:
            raise UserError("no such task in this file", where=arg, remedy=f"its task is {ids[0]}")
        matches += [replace(hit, item=item or None) for hit in hits]
    return matches
