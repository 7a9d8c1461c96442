"""The journal of a run: every record is on disk before the next subgraph begins.

It is a text file, ``journal.jsonl`` in the run's folder: a line for the header, then a line per record. Each line
begins with the SHA-256 of the rest. So a line that a full disk or a kill has cut short is recognised, and all whole
lines count. A run goes on from it: nothing is judged twice, and the result is that of one run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import decode, opened
from pytest_passbench.core.jsontext import parse
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.run import plain
from pytest_passbench.core.settings import LATEST
from pytest_passbench.run.results_file import MAX_BYTES, decode_special

NAME = "journal.jsonl"
SCHEMA = "passbench-journal/1"


class Journal:
    """A run's journal, open for appending. A process of the run writes to a file of its own (``worker``)."""

    def __init__(self, folder: Path, header: dict[str, Any], worker: str = "") -> None:
        """Make the journal in ``folder`` (made if it is missing) and write the header.

        Raises UserError if it cannot be written.
        """
        self.path = folder / (f"journal-{worker}.jsonl" if worker else NAME)
        self.fault = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file: IO[bytes] = os.fdopen(descriptor, "ab", buffering=0)
        except OSError as error:
            remedy = "choose another folder with --passbench-report-dir"
            raise UserError(f"cannot be written: {error.strerror}", where=self.path, remedy=remedy) from None
        self._append({"schema": SCHEMA, "header": header})

    def add(self, record: Record) -> None:
        """Append a record. A disk that is full or gone is no end of the run: ``fault`` says what is wrong then."""
        self._append({"record": record.to_json()})

    def _append(self, content: dict[str, Any]) -> None:
        text = json.dumps(plain(content), separators=(",", ":"), allow_nan=False).encode("ascii")
        try:
            self._file.write(hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n")
            os.fsync(self._file.fileno())
            self.fault = ""
        except OSError as error:
            self.fault = f"{self.path}: cannot be written: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class Journaled:
    """The contents of a run's journals. ``cut`` counts the lines that are not whole."""

    header: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    cut: int = 0


def read(folder: Path) -> Journaled:
    """Return what the journals in a run's folder hold, in the order in which it was written.

    Raises UserError if there is no journal, or none of this version.
    """
    paths = sorted(folder.glob("journal*.jsonl"))
    if not paths:
        raise UserError("has no journal", where=folder, remedy="name the folder of a run that was interrupted")
    journaled: Journaled | None = None
    for path in paths:
        part = _read(path)
        if journaled is None:
            journaled = part
        elif part.header == journaled.header:
            journaled.records += part.records
            journaled.cut += part.cut
        else:
            raise UserError("is of another run than the journals beside it", where=path, remedy="remove the folder")
    assert journaled is not None
    return journaled


def _read(path: Path) -> Journaled:
    with opened(path, MAX_BYTES) as file:
        contents, cut = _whole(iter(lambda: file.readline(MAX_BYTES), b""), path)
    first = contents[0] if contents else {}
    if first.get("schema") != SCHEMA or not isinstance(first.get("header"), dict):
        remedy = "start the run anew: it was interrupted before it began, or is of another version"
        raise UserError("is no journal of this version", where=path, remedy=remedy)
    try:
        records = [Record.from_data(content.get("record")) for content in contents[1:]]
    except Rejected as error:
        raise UserError(f"has another form: {error}", where=path, remedy="start the run anew") from None
    return Journaled(first["header"], records, cut)


def _whole(lines: Iterable[bytes], path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the contents of the lines that are whole, and the number of those that are not."""
    contents: list[dict[str, Any]] = []
    cut = 0
    for line in lines:
        digest, _, text = line.removesuffix(b"\n").partition(b" ")
        if line.endswith(b"\n") and hashlib.sha256(text).hexdigest().encode() == digest:
            content = parse(decode(text, path), path, decode_special)
            contents += [content] if isinstance(content, dict) else []
        else:
            cut += 1
    return contents, cut


def interrupted_folder(folder: str, report_dir: Path, base: Path) -> Path:
    """Return the folder of a run to go on with: ``folder``, relative to ``base``, or the latest in ``report_dir``.

    Raises UserError if there is none.
    """
    if folder != LATEST:
        return base / folder
    folders = sorted({path.parent for path in report_dir.glob("*/journal*.jsonl")}, key=lambda path: path.name)
    if not folders:
        raise UserError("has no run that was interrupted", where=report_dir, remedy="run without --passbench-resume")
    return folders[-1]


@dataclass(frozen=True)
class Earlier:
    """A run that was interrupted: its folder, the header of its journal, and how many of its lines were cut short.

    ``records`` has the last record of each task, candidate and subgraph.
    """

    folder: Path
    header: dict[str, Any]
    records: dict[tuple[str, str, str], Record]
    cut: int

    def __str__(self) -> str:
        summary = f"{counted(len(self.records), 'subgraph is', 'subgraphs are')} not judged again"
        return f"resumes {self.folder}: {summary}" + (f"; lines that were cut short: {self.cut}" if self.cut else "")


def read_interrupted(folder: Path) -> Earlier:
    """Return the interrupted run in a folder, without what the harness failed to judge: that is judged again.

    Raises UserError if the folder has no journal that can be read.
    """
    journaled = read(folder)
    judged = [record for record in journaled.records if record.judged]
    records = {(record.task, record.candidate, record.subgraph): record for record in judged}
    return Earlier(folder, journaled.header, records, journaled.cut)


def check_same_run(earlier: Earlier, header: Mapping[str, Any]) -> None:
    """Raise UserError if an interrupted run was of something else than the run that is to go on with it.

    ``header`` is the new run's, as :meth:`~pytest_passbench.run.ledger.Ledger.header` makes it.
    """
    changed = list(_differences(earlier.header, header))
    if changed:
        remedy = "give the same candidate and options as before, or run without --passbench-resume"
        raise UserError(f"cannot be resumed: {'; '.join(changed)}", where=earlier.folder, remedy=remedy)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = old.get("settings", {}), new["settings"]
    for name in now:
        if before.get(name) != now[name]:
            yield f"{name} was {before.get(name)!r} and is {now[name]!r}"
    previous, present = old.get("candidates", {}), new["candidates"]
    if list(previous) != list(present):
        yield f"the candidates were {', '.join(previous)} and are {', '.join(present)}"
    else:
        for name in present:
            if previous[name] != present[name]:
                yield f"the files of the candidate {name} have changed"
    if old.get("against", "") != new["against"]:
        yield "the reference (--passbench-against) is another one, or its files have changed"
    if old.get("compared", "") != new["compared"]:
        yield "the run to compare with (--passbench-compare), or how, is another one"
    if old.get("seed") != new["seed"]:
        yield "the seed is another one"
    if old.get("harness") != new["harness"]:
        yield "this is another version of pytest-passbench"
