"""A caller's arguments: settings, tasks, and candidates as text.

A model's answer maps file names to texts. It is written to a folder that is removed at the end of the call.
"""

from __future__ import annotations

import json
import re
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_passbench.candidate.layout import MANIFEST, Candidate
from pytest_passbench.candidate.syntax import read_fault
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.options import OPTIONS, PYTEST_ONLY, Option, as_settings
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.settings import SUITES, Settings
from pytest_passbench.core.task import Task
from pytest_passbench.run.ledger import Ledger, open_candidates, open_reference, run_seed
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef, edition_of
from pytest_passbench.suite.taskfile import task_hash

Answer = Mapping[str, str]
"""The text of each file, by its path in the candidate's folder."""

CandidateSource = str | Path | Answer
"""A candidate as callers give it: its folder, or its files' texts."""

MAX_FILES, MAX_CHARACTERS = 1_000, 16 << 20
"""Bounds of an answer."""

NOT_SETTINGS = frozenset({"candidates", "tasks", "report_dir", "fail_under", "only_matching"})
"""Fields of Settings that are separate arguments here, or that only runs from the command line use."""

_NEAR_A_PASS = re.compile(r"\b(pattern|replacement_\w*|supported)\b")

Paths = str | Path | Iterable[str | Path]


def paths(argument: Paths) -> Iterator[Path]:
    """Yield each path of an argument that is one, or an iterable of them."""
    if isinstance(argument, str | Path):
        yield Path(argument)
    else:
        yield from map(Path, argument)


def task_paths(tasks: Paths | None) -> tuple[Path, ...]:
    """Return the paths of tasks; () for None, a suite of installed tasks. Raises UserError for an empty list."""
    if tasks is None:
        return ()
    if not (result := tuple(paths(tasks))):
        raise _no_task()
    return result


def _no_task() -> UserError:
    return UserError("no task is named", where="tasks", remedy=f"a task's id or file, or one of {SUITES}")


def settings(values: dict[str, Any], where: str, refused: Iterable[str] = (), **places: Iterable[Path]) -> Settings:
    """Return the settings with these names, and with ``places`` by field: candidates and tasks.

    Raises UserError for an unknown one, one that is ``refused``, or a value that the command line would refuse.
    ``where`` begins its message.
    """
    options = {option.key: option for option in OPTIONS}
    names = {item.name for item in fields(Settings)} - PYTEST_ONLY - NOT_SETTINGS - set(refused)
    for name in values:
        if name not in names:
            raise UserError(f"unknown setting {name!r}", where=where, remedy=f"one of {sorted(names)}")
    checked = {name: _checked(options.get(name), value, where) for name, value in values.items()}
    return as_settings({**checked, **places})


def _checked(option: Option | None, value: Any, where: str) -> Any:
    """Return a value as the command line would read it. Raises UserError if it would refuse it."""
    if option is None or value is None:
        return value
    try:
        return tuple(option.type(str(item)) for item in value) if option.many else option.type(str(value))
    except ArgumentTypeError as error:
        raise UserError(str(error), where=f"{where}, {option.key}") from None


def begin_run(requested: Settings) -> tuple[Ledger, list[Task]]:
    """Return the ledger of a run that is to be made with these settings, and the run's tasks.

    Raises UserError for a folder that is no candidate, and if there are no tasks, or one that cannot be read.
    """
    candidates, reference = open_candidates(requested.candidates), open_reference(requested)
    named = _with_ids(requested)
    ledger, tasks = Ledger(named, candidates, run_seed(named.seed), reference), _tasks(named)
    ledger.select(tasks)
    return ledger, tasks


def _with_ids(requested: Settings) -> Settings:
    """Return the settings with paths alone as ``tasks``: names of installed tasks become ``task_ids``.

    If ``tasks`` has paths too, or other settings choose among them, a name becomes its task's file. Raises UserError
    for a word that names no task.
    """
    refs = {base: find.at(base) for base in requested.tasks}
    names = {base for base in refs if not refs[base][0].path.is_relative_to(base)}
    if names and len(names) == len(refs) and requested.suite == "all" and not requested.task_ids:
        ids = dict.fromkeys(ref.id for base in refs for ref in refs[base])
        return replace(requested, tasks=(), task_ids=tuple(ids))
    files = [[ref.path for ref in refs[base]] if base in names else [base] for base in refs]
    return replace(requested, tasks=tuple(path for group in files for path in group))


def _tasks(requested: Settings) -> list[Task]:
    """Return the tasks of a run's settings."""
    bases = requested.tasks or (find.installed_tasks(),)
    refs = find.distinct([ref for base in bases for ref in find.at(base)])
    named = find.named(refs, requested.task_ids) if requested.task_ids else find.select(refs, requested.suite)
    return [ref.load() for ref in named]


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
        refs = find.distinct([ref for word in word_list for ref in self._at(word)])
        if not refs:
            raise _no_task()
        return [self._loaded(ref) for ref in refs]

    def _at(self, word: str | Path) -> list[TaskRef]:
        self._refs = self._refs or {ref.id: ref for ref in find.discover(find.installed_tasks())}
        if word in SUITES:
            return find.select(list(self._refs.values()), str(word))
        if str(word) in self._refs and not Path(word).exists():
            return [self._refs[str(word)]]
        return find.at(word)

    def _loaded(self, ref: TaskRef) -> Task:
        if self._refs.get(ref.id) is not ref:  # a file of the user's, which may change
            return ref.load()
        if ref.path not in self._read:
            self._read[ref.path] = ref.load()
        return self._read[ref.path]


@dataclass(frozen=True)
class Entry:
    """A candidate of a call. If ``candidate`` is None, ``mistake`` says why an answer's texts are no candidate."""

    name: str
    candidate: Candidate | None
    mistake: str = ""

    def records(self, task: Task, scoring: Settings) -> Iterator[Record]:
        """Yield the record of each of a task's subgraphs for an answer that is no candidate: it does not compile."""
        for subgraph in task.subgraphs:
            yield Record(
                task.id, subgraph.id, self.name, subgraph.source, subgraph.dtype, tolerance=scoring.tolerance,
                criterion=scoring.criterion, arm=ArmResult("compile_fail", "load", self.mistake),
                operators=list(task.header.ops), headroom=task.header.headroom, task_hash=task_hash(task),
                edition=edition_of(task.path),
            )  # fmt: skip


@contextmanager
def entries(sources: Sequence[CandidateSource]) -> Iterator[list[Entry]]:
    """Return the candidates of a call, within a context that keeps the files of those given as text.

    Those are called ``answer``, or ``answer-1`` and so on if there are several. Raises UserError for a folder that is
    no candidate. A mistake in an answer is not raised: it becomes :attr:`Entry.mistake`.
    """
    folders = [Path(item).resolve() for item in sources if isinstance(item, str | Path)]
    opened = iter(open_candidates(folders) if folders else [])
    texts = sum(not isinstance(item, str | Path) for item in sources)
    with tempfile.TemporaryDirectory(prefix="passbench-answers-") as scratch:
        result, number = list[Entry](), 0
        for item in sources:
            if isinstance(item, str | Path):
                candidate = next(opened)
                result.append(Entry(candidate.name, candidate))
            else:
                number += 1
                name = "answer" if texts == 1 else f"answer-{number}"
                result.append(_written(item, Path(scratch) / name))
        names = [entry.name for entry in result]
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"a candidate's folder is called {name!r}, the name of candidates given as text",
                    remedy="rename the folder",
                )
        yield result


def _written(answer: Answer, folder: Path) -> Entry:
    try:
        write_answer(answer, folder)
        return Entry(folder.name, Candidate.open(folder))
    except UserError as error:
        return Entry(folder.name, None, str(error).replace(f"{folder}/", "").replace(str(folder), "the answer"))


def write_answer(answer: Answer, folder: Path) -> None:
    """Write an answer's files to a new folder, with a manifest of its passes if it has none. Raises UserError."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"a candidate is a folder, or a mapping of file names to texts, not {type(answer).__name__}")
    if len(answer) > MAX_FILES or sum(len(text) for text in answer.values()) > MAX_CHARACTERS:
        raise UserError(f"has more than {MAX_FILES} files or {MAX_CHARACTERS} characters", where="the answer")
    folder.mkdir()
    for name, text in answer.items():
        path = PurePosixPath(name)
        parts = path.parts
        if not parts or path.is_absolute() or ".." in parts or "\0" in name or not name.isprintable():
            raise UserError(f"{abbreviated(name)} is no path of a file in a folder", where="the answer")
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        except (OSError, UnicodeEncodeError) as error:
            surrogate = "it has an unpaired surrogate, which UTF-8 cannot write"
            reason = error.strerror if isinstance(error, OSError) else surrogate
            raise UserError(f"cannot be written: {reason}", where=f"the answer's {abbreviated(name)}") from None
    _add_manifest(answer, folder)


def _add_manifest(answer: Answer, folder: Path) -> None:
    """Write the manifest of an answer that has none: the names of its top-level passes, in the answer's order.

    Raises UserError if there is no pass, but a file with a fault: it says what the file nearest to a pass lacks.
    """
    if any(PurePosixPath(name).name == MANIFEST for name in answer):
        return
    files = [PurePosixPath(name) for name, text in answer.items() if "replacement_func" in text]
    stems = [file.stem for file in files if len(file.parts) == 1 and file.suffix == ".py"]
    if stems:
        (folder / MANIFEST).write_text(json.dumps(stems))
        return
    likely = sorted(folder.glob("*.py"), key=lambda file: not _NEAR_A_PASS.search(file.read_text(encoding="utf-8")))
    fault = next(filter(None, map(read_fault, likely)), None)
    if fault is not None:
        raise UserError(fault.message, where=f"{fault.file}:{fault.line}")
