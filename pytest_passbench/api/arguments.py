"""A caller's arguments: settings and tasks."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.options import OPTIONS, PYTEST_ONLY, Option
from pytest_passbench.core.settings import SUITES, Settings
from pytest_passbench.core.task import Task
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef

NOT_SETTINGS = frozenset({"candidates", "tasks", "report_dir", "fail_under"})
"""Fields of Settings that are arguments of their own here, or about files and gates that a caller has none of."""

MAX_KEPT_TASKS = 4096
"""Installed tasks that are kept in memory once they were read."""

Paths = str | Path | Iterable[str | Path]


def paths(argument: Paths) -> Iterator[Path]:
    """Yield each path of an argument that is one, or an iterable of them."""
    if isinstance(argument, str | Path):
        yield Path(argument)
    else:
        yield from map(Path, argument)


def settings(values: dict[str, Any], where: str, refused: Iterable[str] = ()) -> Settings:
    """Return the settings with these names.

    Raises UserError for an unknown one, one that is ``refused``, or a value that the command line would refuse.
    ``where`` begins its message.
    """
    options = {option.key: option for option in OPTIONS}
    names = {item.name for item in fields(Settings)} - PYTEST_ONLY - NOT_SETTINGS - set(refused)
    for name, value in values.items():
        if name not in names:
            raise UserError(f"unknown setting {name!r}", where=where, remedy=f"one of {sorted(names)}")
        if name in options and value is not None:
            _check_value(options[name], value, where)
    return Settings(**values)


def _check_value(option: Option, value: Any, where: str) -> None:
    try:
        for item in value if option.many else [value]:
            option.type(str(item))
    except ArgumentTypeError as error:
        raise UserError(str(error), where=f"{where}, {option.key}") from None


def load(requested: Settings) -> Iterator[Task]:
    """Yield the tasks of a run's settings. Raises UserError if there are none, or if one cannot be read."""
    bases = requested.tasks or (find.installed_tasks(),)
    refs = [ref for base in bases for ref in find.at(base)]
    named = find.named(refs, requested.task_ids) if requested.task_ids else find.select(refs, requested.suite)
    for ref in named:
        yield ref.load()


@dataclass
class TaskShelf:
    """The tasks that calls name, again and again. What was read of the installed tasks is kept in memory."""

    _refs: dict[str, TaskRef] = field(default_factory=dict)
    _read: dict[Path, Task] = field(default_factory=dict)

    def named(self, words: Paths) -> list[Task]:
        """Return the tasks that words name, each once, in the order of the words.

        A word is the name of a suite of installed tasks, the id of an installed task, a task file, or a folder of
        tasks. Names of suites go first: a folder of the name is written ``./lite``. Raises UserError if nothing is
        called that, or if a task cannot be read.
        """
        word_list = [words] if isinstance(words, str | Path) else list(words)
        tasks: dict[str, Task] = {}
        for word in word_list:
            for task in self._at(word):
                if tasks.setdefault(task.id, task).path != task.path:
                    message = f"two tasks are called {task.id}: the other one is {tasks[task.id].path}"
                    raise UserError(message, where=task.path, remedy="give one of them another id")
        if not tasks:
            raise UserError("no task is named", where="tasks", remedy=f"a task's id or file, or one of {SUITES}")
        return list(tasks.values())

    def _at(self, word: str | Path) -> list[Task]:
        installed = self._installed()
        if word in SUITES:
            return [self._loaded(ref) for ref in find.select(list(installed.values()), str(word))]
        if str(word) in installed and not Path(word).exists():
            return [self._loaded(installed[str(word)])]
        return [ref.load() for ref in find.at(word)]

    def _installed(self) -> dict[str, TaskRef]:
        if not self._refs:
            self._refs = {ref.id: ref for ref in find.discover(find.installed_tasks())}
        return self._refs

    def _loaded(self, ref: TaskRef) -> Task:
        if ref.path not in self._read:
            while len(self._read) >= MAX_KEPT_TASKS:
                self._read.pop(next(iter(self._read)))
            self._read[ref.path] = ref.load()
        return self._read[ref.path]


def of_tasks(run_settings: Settings, tasks: Iterable[Task]) -> Settings:
    """Return the settings of a run on these tasks, for its results."""
    return replace(run_settings, suite="all", task_ids=tuple(task.id for task in tasks))
