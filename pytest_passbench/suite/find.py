"""The search for tasks: the installed ones, those at a path, and those of a shard; and the edition of their suite.

Tasks change from one edition to the next, so their results are not to be mixed. The edition stands in one place: the
file ``EDITION`` in the suite's folder.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import kind_of, read_text
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.paths import INSTALLED, PACKAGE
from pytest_passbench.core.settings import SUITES
from pytest_passbench.core.task import Task, TaskHeader
from pytest_passbench.suite import published, taskfile
from pytest_passbench.suite.limits import MAX_FILE_BYTES, MAX_FOLDER_DEPTH, MAX_FOLDERS

EDITION_FILE = "EDITION"
MAX_EDITION_CHARACTERS = 40
MAX_EDITION_BYTES = 1 << 16
MAX_FOLDERS_UP = 4
"""How far above a task's file the suite's folder may be."""

MAX_NAMED = 12  # values that a message lists, if no task has the user's value
Kind = Literal["task", "sample", "subgraph"]

_READERS = {"task": taskfile.read_task, "sample": published.read_sample, "subgraph": published.read_subgraph_folder}


@dataclass(frozen=True)
class TaskRef:
    """A task that was found but not read: a task file, a published sample, or a bare subgraph folder.

    The header of a published folder has no ``ops`` if the folder does not state them.
    """

    path: Path
    header: TaskHeader
    kind: Kind

    @property
    def id(self) -> str:
        """The task's id."""
        return self.header.id

    def load(self) -> Task:
        """Return the task. Raises UserError with file and line if it cannot be read."""
        task = read(self.path, self.kind)
        return replace(task, header=replace(task.header, id=self.header.id))

    def content_hash(self) -> str:
        """Return the SHA-256 (hexadecimal) of the file; of a published folder that of the task. Raises UserError."""
        if self.kind != "task":
            return taskfile.task_hash(self.load())
        return hashlib.sha256(read_text(self.path, MAX_FILE_BYTES).encode()).hexdigest()


def read(path: Path, kind: Kind) -> Task:
    """Return the task at a path of that kind. Raises UserError with file and line if it cannot be read."""
    return _READERS[kind](path)


def installed_tasks() -> Path:
    """Return the folder of the package's own tasks: in the package, or beside it in a checkout. Raises UserError."""
    for folder in (PACKAGE / "tasks", PACKAGE.parent / "tasks"):
        if folder.is_dir():
            return folder
    raise UserError("no tasks are installed", where=PACKAGE, remedy="install the package again, or name a path")


def discover(path: Path) -> list[TaskRef]:
    """Return the tasks at a path, in the order of their paths.

    The path is a task file, a published sample, a bare subgraph folder, or a folder that holds any of these at
    any depth. Published folders often share a name; names of their parents are then put before it. Raises
    UserError if there are no tasks, if a header cannot be read, or if two task files have the same id.
    """
    refs = []
    for entry, kind in walk(path):
        header = taskfile.read_header(entry) if kind == "task" else published.read_folder_header(entry)
        refs.append(TaskRef(entry, header, kind))
    return _with_own_ids(refs)


def at(name: str | Path) -> list[TaskRef]:
    """Return the tasks that a word of the user's names, in the order of their paths.

    The word is a path, the id of an installed task, or the path or node id that pytest prints for an installed task.
    A path that exists is taken before an id. If it holds no tasks, an id of that name is taken.
    Raises UserError if nothing has that name, or if the word is both an id and a path with tasks.
    """
    path = Path(name)
    if kind_of(path) is not None:
        task = _installed(str(name))
        if task is None:
            return discover(path)
        if any(_tasks_below(path)):
            remedy = f"write {task.path} or {path.resolve()}"
            raise UserError("is the id of an installed task, and holds tasks here", where=name, remedy=remedy)
        return [task]
    printed = Path(str(name).partition("::")[0])
    if printed.parts[:1] == (INSTALLED,):
        inside = installed_tasks().joinpath(*printed.parts[1:])
        if kind_of(inside) is not None:
            return discover(inside)
    if len(path.parts) != 1 or path.name.endswith(taskfile.SUFFIX):
        return discover(path)  # which says that it is not there
    return named(discover(installed_tasks()), [str(name)])


def _installed(name: str) -> TaskRef | None:
    """Return the installed task whose file is called by this id, or None. No other file is read."""
    if os.sep in name:
        return None
    files = (path for path, _kind in walk(installed_tasks()) if path.name == f"{name}{taskfile.SUFFIX}")
    return next((TaskRef(path, taskfile.read_header(path), "task") for path in files), None)


def single(name: str | Path) -> TaskRef:
    """Return the only task that a word names, as in :func:`at`. Raises UserError if there are none, or several."""
    refs = at(name)
    if len(refs) > 1:
        raise UserError(f"{len(refs)} tasks", where=name, remedy="name one of them")
    return refs[0]


def walk(path: Path) -> list[tuple[Path, Kind]]:
    """Return the paths and kinds of the tasks at a path, in order, unread. Raises UserError if there are none."""
    if kind_of(path) is None:
        raise UserError("no such file or folder", where=path, remedy="name a task file, or a folder of tasks")
    entries = list(_tasks_below(path))
    if not entries:
        raise UserError("holds no tasks", where=path, remedy=f"tasks are *{taskfile.SUFFIX} files or samples")
    return entries


def select(refs: Sequence[TaskRef], suite: str) -> list[TaskRef]:
    """Return the tasks of a suite: lite or train by tag, full (all but those for training), all. Raises UserError."""
    if suite not in SUITES:
        raise UserError(f"no suite {suite!r}", remedy=f"suites are: {', '.join(SUITES)}")
    if suite == "all":
        return list(refs)
    if suite == "full":
        return [r for r in refs if "train" not in r.header.tags]
    return [r for r in refs if suite in r.header.tags]


def named(refs: Sequence[TaskRef], ids: Sequence[str]) -> list[TaskRef]:
    """Return the tasks with these ids, in the order of the ids. Raises UserError for an id that no task has."""
    ref_of = {ref.id: ref for ref in refs}
    for name in ids:
        if name not in ref_of:
            raise no_such_task(name, ref_of)
    return [ref_of[name] for name in dict.fromkeys(ids)]


def distinct(refs: Sequence[TaskRef]) -> list[TaskRef]:
    """Return the tasks, each once. Raises UserError if two of them have the same id, by which results are kept."""
    ref_of: dict[str, TaskRef] = {}
    for ref in refs:
        first = ref_of.setdefault(ref.id, ref)
        if first.path.resolve() != ref.path.resolve():
            raise same_id(ref.id, first.path, ref.path)
    return list(ref_of.values())


def same_id(name: str, first: str | Path, second: str | Path) -> UserError:
    """Return the error for two tasks of one id, at these places."""
    return UserError(f"task id {abbreviated(name)} is also that of {first}", where=second, remedy="rename one")


def no_such_task(name: str, ids: Iterable[str], where: Path | None = None) -> UserError:
    """Return the error for an id at ``where`` that no task has. Its remedy proposes the most similar id."""
    remedy = f"{did_you_mean(name, ids)}'passbench tasks list' shows the ids"
    return UserError(f"no task is called {abbreviated(name)}", where=where, remedy=remedy)


def check_value(what: str, value: str, values: Collection[str]) -> None:
    """Raise UserError if no task has this value of a property, such as "operator" (``what``).

    ``values`` are those that tasks have. The remedy is the most similar value. If none is similar, it is all values,
    or the command that shows them.
    """
    if value in values:
        return
    names = sorted(filter(None, values))
    remedy = did_you_mean(value, names).strip()
    if not remedy:
        few = 0 < len(names) <= MAX_NAMED
        remedy = (
            f"there are: {', '.join(names)}" if few else "'passbench tasks list --json' shows those that there are"
        )
    raise UserError(f"no task has the {what} {abbreviated(value)}", remedy=remedy)


def did_you_mean(name: str, names: Iterable[str], spelling: Callable[[str], str] = str) -> str:
    """Return a question that proposes the most similar of ``names``, and a space; "" if none is similar.

    ``spelling`` returns what to write for a name.
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {spelling(near[0])}? " if near else ""


def _tasks_below(start: Path) -> Iterator[tuple[Path, Kind]]:
    """Yield the tasks at a path, in order. Links to folders are followed, except to one that the search is in."""
    entries = itertools.count(1)

    def below(path: Path, inside: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, Kind]]:
        if next(entries) > MAX_FOLDERS or len(inside) > MAX_FOLDER_DEPTH:
            what = f"has more than {MAX_FOLDERS:,} folders, or {MAX_FOLDER_DEPTH} in each other"
            raise UserError(what, where=start, remedy="name the folder of tasks itself")
        kind = _kind(path)
        if kind is not None:
            yield path, kind
        elif kind_of(path) == "folder":
            status = path.stat()
            if (here := (status.st_dev, status.st_ino)) not in inside:
                for entry in sorted(_entries(path)):
                    yield from below(entry, (*inside, here))

    return below(start, ())


def _kind(path: Path) -> Kind | None:
    """Return the kind of a path by its name and the names in it, whether or not it can be read; None if no task."""
    if kind_of(path) != "folder":
        return "task" if path.name.endswith(taskfile.SUFFIX) else None
    if kind_of(path / published.LIST) is not None:
        return "sample"
    return "subgraph" if kind_of(path / published.MODEL) in ("file", "other") else None


def _entries(folder: Path) -> Iterator[Path]:
    """Yield a folder's task files and subfolders, except hidden folders and those of byte code."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir() and not entry.name.startswith((".", "__"))
                if is_folder or entry.name.endswith(taskfile.SUFFIX):
                    yield Path(entry.path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=folder, remedy="check its permissions") from None


def _with_own_ids(refs: list[TaskRef]) -> list[TaskRef]:
    """Return the tasks. If published folders share an id, they get the names of their parents before it.

    As many parents are named as make the ids differ. If that is impossible, as links lead to one folder twice, the
    later ones are numbered. Raises UserError if two task files have the same id.
    """
    names: dict[Path, str] = {}
    task_ids = {ref.id for ref in refs if ref.kind == "task"}
    groups = grouped(refs, lambda ref: ref.id).items()
    for name, group in sorted(groups, key=lambda item: len(item[1]) > 1):  # kept ids go first
        files, folders = ([ref.path for ref in group if (ref.kind == "task") is is_file] for is_file in (True, False))
        if len(files) > 1:
            raise same_id(name, files[0], files[1])
        ids = [name] * len(folders) if len(group) == 1 else _with_parents(name, folders)
        for folder, wish in zip(folders, ids, strict=True):
            names[folder] = published.distinct(wish, task_ids)
            task_ids.add(names[folder])
    return [replace(ref, header=replace(ref.header, id=names.get(ref.path, ref.id))) for ref in refs]


def _with_parents(name: str, folders: list[Path]) -> list[str]:
    """Return ids that put parents' names before ``name``: the fewest that make all differ; one if none do."""
    parents = [folder.resolve().parent.parts[1:] for folder in folders]
    ids: list[str] = []
    for depth in range(1, max(map(len, parents), default=0) + 1):
        ids = [published.identifier("-".join((*parts[-depth:], name))) for parts in parents]
        if len(set(ids)) == len(ids):
            return ids
    return [published.identifier("-".join((*parts[-1:], name))) for parts in parents]


def of_shard(costs: Mapping[str, int], index: int, parts: int) -> set[str]:
    """Return the ids of the tasks of a shard. ``costs`` has subgraphs by task id; ``index`` is from 1 to ``parts``.

    The costliest tasks are dealt out first, so that the parts take about as long as each other.
    """
    dealt = sorted(costs, key=lambda task: (-costs[task], task))
    return set(dealt[index - 1 :: parts])


def edition_of(path: Path) -> str:
    """Return the edition of the suite that the task at ``path`` belongs to, or "" if it belongs to none.

    Raises UserError if the file that states it cannot be read.
    """
    return _edition(path.absolute().parent)


@functools.lru_cache(maxsize=1024)
def _edition(folder: Path) -> str:
    for place in (folder, *folder.parents[:MAX_FOLDERS_UP]):
        if kind_of(place / EDITION_FILE) == "file":
            return read_text(place / EDITION_FILE, MAX_EDITION_BYTES).strip()[:MAX_EDITION_CHARACTERS]
    return ""
