"""The journal of a run: every record is on disk before the next subgraph begins.

It is a text file, ``journal.jsonl`` in the run's folder: a line for the header, then a line per record. Each line
begins with the SHA-256 of the rest. So a line that a full disk or a kill has cut short is recognised, and all whole
lines count. A run goes on from it: nothing is judged twice, and the result is that of one run.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import decode, opened, writing
from pytest_passbench.core.jsontext import parse
from pytest_passbench.core.paths import user_cache
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Key, Record
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.run import Run, plain
from pytest_passbench.core.settings import LATEST
from pytest_passbench.core.typed import schema_of
from pytest_passbench.run import results_file
from pytest_passbench.run.results_file import MAX_BYTES, decode_special

NAME = "journal.jsonl"
PATTERN = "journal*.jsonl"
SCHEMA = "passbench-journal/1"
#: The fields of a header that are objects; all others are texts.
_OBJECTS = ("settings", "candidates")


class Journal:
    """A run's journal, open for appending. A process of the run writes to a file of its own (``worker``)."""

    def __init__(self, folder: Path, header: dict[str, Any], worker: str = "") -> None:
        """Make the journal in ``folder`` (made if it is missing) and write the header.

        Raises UserError if it cannot be written.
        """
        self.path = folder / (f"journal-{worker}.jsonl" if worker else NAME)
        self.fault = ""
        with writing(self.path, "choose another folder with --passbench-report-dir"):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file: IO[bytes] = os.fdopen(descriptor, "ab", buffering=0)
        self._append({"schema": SCHEMA, "header": header})

    def add(self, record: Record) -> None:
        """Append a record. A full or missing disk does not end the run: ``fault`` then says what is wrong."""
        self._append({"record": record.to_json()})

    def _append(self, content: dict[str, Any]) -> None:
        text = json.dumps(plain(content), separators=(",", ":"), allow_nan=False).encode("ascii")
        # After a fault, the line before may have been cut short.
        line = b"\n" * bool(self.fault) + hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
            self.fault = ""
        except OSError as error:
            self.fault = f"{self.path}: cannot be written: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _journals(folder: Path) -> list[Path]:
    """Return the journals in a run's folder. Raises UserError if there are none."""
    paths = sorted(folder.glob(PATTERN))
    if not paths:
        what = "has no journal: only an interrupted run that was not resumed has one"
        raise UserError(what, where=folder, remedy="name the folder of such a run")
    return paths


def read(folder: Path) -> tuple[dict[str, Any], list[Record], int]:
    """Return the header and the records of a run's journals, as they were written, and how many lines are not whole.

    The journal of a worker that was lost before it wrote a whole line is ignored. Raises UserError if there is no
    journal, or none of this version.
    """
    lines = {path: _lines(path) for path in _journals(folder)}
    begun = [path for path in lines if lines[path][0]] or list(lines)[:1]
    parts = {path: _parsed(path, lines[path][0]) for path in begun}
    header, _ = parts[begun[0]]
    for path, (other, _) in parts.items():
        if other != header:
            raise UserError("is of another run than the journals beside it", where=path, remedy="remove the folder")
    records = [record for _, part in parts.values() for record in part]
    return header, records, sum(cut for _, cut in lines.values())


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the contents of the lines that are whole, and the number of those that are not."""
    contents: list[dict[str, Any]] = []
    cut = 0
    with opened(path, MAX_BYTES) as file:
        for line in iter(lambda: file.readline(MAX_BYTES), b""):
            digest, _, text = line.removesuffix(b"\n").partition(b" ")
            if line.endswith(b"\n") and hashlib.sha256(text).hexdigest().encode() == digest:
                content = parse(decode(text, path), path, decode_special)
                contents += [content] if isinstance(content, dict) else []
            else:
                cut += 1
    return contents, cut


def _parsed(path: Path, contents: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Record]]:
    """Return the header and the records of a journal's lines. Raises UserError if they have another form."""
    first = contents[0] if contents else {}
    if first.get("schema") != SCHEMA or not isinstance(first.get("header"), dict):
        remedy = "start the run anew: it was interrupted before it began, or is of another version"
        raise UserError("is no journal of this version", where=path, remedy=remedy)
    try:
        for name, value in first["header"].items():
            schema_of(dict[str, Any] if name in _OBJECTS else str).check(value, (None, name))
        records = [Record.from_data(content.get("record")) for content in contents[1:]]
    except Rejected as error:
        raise UserError(f"has another form: {error}", where=path, remedy="start the run anew") from None
    return first["header"], records


def last_records(folder: Path) -> dict[Key, Record]:
    """Return the last record of each key in a folder's journals; none if there is no journal that can be read."""
    try:
        _header, records, _cut = read(folder)
        return {record.key: record for record in records}
    except UserError:
        return {}


def command_file(folder: Path) -> Path | None:
    """Return the file that has the command line of the run in a folder; None if the user has no home.

    It is not in that folder, which may be another user's: an argument of pytest can name code to be run.
    """
    commands = user_cache("commands")
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return commands / f"{name}.json" if commands is not None else None


def remove(folder: Path) -> None:
    """Remove the journals in a run's folder, and its command line: its results have all that they hold."""
    command = command_file(folder)
    for path in (*folder.glob(PATTERN), *([command] if command is not None else [])):
        path.unlink(missing_ok=True)


def remove_halves(earlier: Earlier, report_dir: Path) -> None:
    """Remove the journals of the interrupted runs that a complete run has resumed: nothing is left to judge.

    They are ``earlier``, and those of the same header in ``report_dir``, which ``earlier`` may have resumed.
    """
    for folder in {earlier.folder, *(path.parent for path in report_dir.glob(f"*/{PATTERN}"))}:
        with contextlib.suppress(UserError, OSError):  # another run's journal cannot be read, or removed
            header, _records, _cut = read(folder)
            if header == earlier.header:
                remove(folder)


def interrupted_folder(folder: str, report_dir: Path, base: Path) -> Path:
    """Return the folder of a run to go on with: ``folder``, relative to ``base``, or the latest in ``report_dir``.

    Raises UserError if there is none.
    """
    if folder != LATEST:
        return base / folder
    folders = sorted({path.parent for path in report_dir.glob(f"*/{PATTERN}")}, key=lambda path: path.name)
    left = (folder for folder in reversed(folders) if not has_ended(folder))
    latest = next(left, None)
    if latest is None:
        raise UserError("has no run that was interrupted", where=report_dir, remedy="run without --passbench-resume")
    return latest


def has_ended(folder: Path) -> bool:
    """Return True if a folder has the results of a run that left nothing to go on with."""
    try:
        return is_whole(results_file.read(folder / results_file.NAME))
    except UserError:
        return False


def check_open(folder: Path) -> None:
    """Raise UserError if a folder has no journal, or a run that ended well."""
    _journals(folder)
    if has_ended(folder):
        raise UserError("is complete: nothing is left to judge", where=folder,
                        remedy="see its results.json, or run without --passbench-resume")  # fmt: skip


def is_whole(run: Run) -> bool:
    """Return True if a run came to its end with a record of every subgraph, each of them judged."""
    counts = Counter((record.candidate, record.task) for record in run.records)
    pairs = [(name, task) for name in run.names for task in run.tasks]
    complete = all(counts[pair] >= run.count(*pair) for pair in pairs)
    return not run.interrupted and complete and all(record.judged for record in run.records)


@dataclass(frozen=True)
class Earlier:
    """A run that was interrupted: its folder, the header of its journal, and how many of its lines were cut short.

    ``records`` has the last record of each task, candidate and subgraph.
    """

    folder: Path
    header: dict[str, Any]
    records: dict[Key, Record]
    cut: int

    def __str__(self) -> str:
        summary = f"{counted(len(self.records), 'subgraph is', 'subgraphs are')} not judged again"
        return f"resumes {self.folder}: {summary}" + (f"; lines that were cut short: {self.cut}" if self.cut else "")


def read_interrupted(folder: Path) -> Earlier:
    """Return the interrupted run in a folder, without what the harness failed to judge: that is judged again.

    Raises UserError if the folder has no journal that can be read, or the results of a run that ended well.
    """
    check_open(folder)
    header, records, cut = read(folder)
    return Earlier(folder, header, {record.key: record for record in records if record.judged}, cut)


def check_same_run(earlier: Earlier, header: Mapping[str, Any]) -> None:
    """Raise UserError if an interrupted run was to judge something else than the run that is to resume it.

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
