"""A candidate as text: a model's answer, by names of files. It is written to a folder that ends with its call."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_passbench.candidate.layout import MANIFEST, Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.task import Task
from pytest_passbench.run.ledger import open_candidates
from pytest_passbench.suite.edition import edition_of
from pytest_passbench.suite.taskfile import task_hash

Answer = Mapping[str, str]
"""The text of each file, by its path in the candidate's folder."""

CandidateSource = str | Path | Answer
"""A candidate as callers give it: its folder, or its files' texts."""

MAX_FILES, MAX_CHARACTERS = 1_000, 16 << 20
"""Bounds of an answer."""


@dataclass(frozen=True)
class Entry:
    """A candidate of a call. ``mistake`` says why there is none: a text from which no candidate can be made."""

    name: str
    candidate: Candidate | None
    mistake: str = ""

    def records(self, task: Task, tolerance: int, criterion: str) -> Iterator[Record]:
        """Yield the record of each of a task's subgraphs for an answer that is no candidate: it does not compile."""
        for subgraph in task.subgraphs:
            record = Record(task.id, subgraph.id, self.name, subgraph.source, subgraph.dtype, tolerance=tolerance)
            record.criterion = criterion  # type: ignore[assignment]
            record.arm = ArmResult("compile_fail", "load", self.mistake)
            record.operators, record.task_hash = list(task.header.ops), task_hash(task)
            record.edition = edition_of(task.path)
            yield record


@contextmanager
def entries(sources: Sequence[CandidateSource]) -> Iterator[list[Entry]]:
    """Return the candidates of a call, within a context that keeps the files of those given as text.

    Those are called ``answer``, or ``answer-1`` and so on if there are several. Raises UserError for a folder that is
    no candidate. An answer's mistakes are its own: they become the :attr:`Entry.mistake`.
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
                raise UserError(f"a folder is called {name}, as an answer is", remedy="rename the folder")
        yield result


def _written(answer: Answer, folder: Path) -> Entry:
    try:
        _write(answer, folder)
        return Entry(folder.name, Candidate.open(folder))
    except UserError as error:
        return Entry(folder.name, None, str(error).replace(f"{folder}/", "").replace(str(folder), "the answer"))


def _write(answer: Answer, folder: Path) -> None:
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
            reason = error.strerror if isinstance(error, OSError) else "it has half of a character"
            raise UserError(f"cannot be written: {reason}", where=f"the answer's {abbreviated(name)}") from None
    _add_manifest(answer, folder)


def _add_manifest(answer: Answer, folder: Path) -> None:
    """Write the manifest of an answer that has none: the Python files beside it that are passes, as they came."""
    if any(PurePosixPath(name).name == MANIFEST for name in answer):
        return
    files = [PurePosixPath(name) for name, text in answer.items() if "replacement_func" in text]
    stems = [file.stem for file in files if len(file.parts) == 1 and file.suffix == ".py"]
    if stems:
        (folder / MANIFEST).write_text(json.dumps(stems))
