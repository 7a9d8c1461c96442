"""Which tasks there are: the installed ones, and whatever a path holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import PACKAGE
from pytest_passbench.core.settings import SUITES
from pytest_passbench.core.task import Task, TaskHeader
from pytest_passbench.suite import published, taskfile

Kind = Literal["task", "sample", "subgraph"]

_READERS = {
    "task": taskfile.read_task,
    "sample": published.read_sample,
    "subgraph": published.read_subgraph_folder,
}


@dataclass(frozen=True)
class TaskRef:
    """A task that was found and not read yet: a task file, a published sample, or a bare subgraph folder.

    The header of a published folder has no ``ops`` where the folder does not say them.
    """

    path: Path
    header: TaskHeader
    kind: Kind

    @property
    def id(self) -> str:
        """The task's id."""
        return self.header.id

    def load(self) -> Task:
        """The task. Raises UserError with file and line."""
        task = read(self.path, self.kind)
        return replace(task, header=replace(task.header, id=self.header.id))


def read(path: Path, kind: Kind) -> Task:
    """The task at a path of that kind. Raises UserError with file and line."""
    return _READERS[kind](path)


def installed_tasks() -> Path:
    """The folder of the tasks that come with the package: in a wheel inside it, in a checkout beside it."""
    for folder in (PACKAGE / "tasks", PACKAGE.parent / "tasks"):
        if folder.is_dir():
            return folder
    raise UserError("no tasks are installed", where=PACKAGE, remedy="install the package again, or name a path")


def discover(path: Path) -> list[TaskRef]:
    """The tasks at a path, in the order of their paths.

    The path is a task file, a published sample, a bare subgraph folder, or a folder that holds any of these
    at any depth. Raises UserError where there are none.
    """
    return _with_own_ids([_ref(found, kind) for found, kind in walk(path)])


def walk(path: Path) -> list[tuple[Path, Kind]]:
    """The paths of the tasks at a path, unread, in order. Raises UserError where there are none."""
    if not path.exists():
        raise UserError("no such file or folder", where=path, remedy="name a task file, or a folder of tasks")
    found = list(_walk(path))
    if not found:
        raise UserError("holds no tasks", where=path, remedy=f"tasks are *{taskfile.SUFFIX} files or samples")
    return found


def select(refs: Sequence[TaskRef], suite: str) -> list[TaskRef]:
    """The tasks of a suite: "lite" or "train" by tag, "full" (all that are not for training) or "all"."""
    if suite not in SUITES:
        raise UserError(f"no suite {suite!r}", remedy=f"suites are: {', '.join(SUITES)}")
    if suite == "all":
        return list(refs)
    if suite == "full":
        return [r for r in refs if "train" not in r.header.tags]
    return [r for r in refs if suite in r.header.tags]


def _walk(path: Path) -> Iterator[tuple[Path, Kind]]:
    kind = _kind(path)
    if kind is not None:
        yield path, kind
    elif path.is_dir():
        for entry in sorted(_entries(path)):
            yield from _walk(entry)


def _ref(path: Path, kind: Kind) -> TaskRef:
    header = taskfile.read_header(path) if kind == "task" else published.read_folder_header(path)
    return TaskRef(path, header, kind)


def _kind(path: Path) -> Kind | None:
    if path.is_file():
        return "task" if path.name.endswith(taskfile.SUFFIX) else None
    if (path / published.LIST).is_file():
        return "sample"
    return "subgraph" if (path / published.MODEL).is_file() else None


def _entries(folder: Path) -> Iterator[Path]:
    """A folder's task files and subfolders, less hidden ones and byte code."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir() and not entry.name.startswith((".", "__"))
                if is_folder or entry.name.endswith(taskfile.SUFFIX):
                    yield Path(entry.path)
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=folder, remedy="check the path") from None


def _with_own_ids(refs: list[TaskRef]) -> list[TaskRef]:
    """Bare subgraph folders often share a name: then their parent's name is put before it."""
    counts: dict[str, list[TaskRef]] = {}
    for ref in refs:
        counts.setdefault(ref.id, []).append(ref)
    refs = [_renamed(r) if r.kind != "task" and len(counts[r.id]) > 1 else r for r in refs]
    seen: dict[str, TaskRef] = {}
    for ref in refs:
        if (other := seen.setdefault(ref.id, ref)) is not ref:
            raise UserError(f"task id {ref.id!r} is also that of {other.path}", where=ref.path, remedy="rename one")
    return refs


def _renamed(ref: TaskRef) -> TaskRef:
    name = published.identifier(f"{ref.path.resolve().parent.name}-{ref.id}")
    return replace(ref, header=replace(ref.header, id=name))
