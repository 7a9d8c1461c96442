"""The journal of a run: every record is on disk before the next subgraph begins.

It is a text file, ``journal.jsonl`` in the run's folder: a line for the header, then a line per record. Each line
begins with the SHA-256 of the rest. So a line that a full disk or a kill has cut short is recognised, and all whole
lines count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import decode, opened
from pytest_passbench.core.jsontext import parse
from pytest_passbench.core.record import Record
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.run import plain
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
