"""A candidate on disk: its pass directories, and the tasks that each is for.

Files are read and parsed here, and never imported or executed. A mistake of the user (no such folder, no manifest)
raises UserError. A mistake of a pass's author (a syntax error) is a fault of the candidate. :attr:`PassDir.faults`
has it, and it is reported as failed cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_passbench.candidate.files import check_files, check_links, content_hash, files, folders
from pytest_passbench.candidate.syntax import Fault, pass_kind, read_fault
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import described, kind_of, read_bytes
from pytest_passbench.core.jsontext import parse as parse_json
from pytest_passbench.suite.find import did_you_mean, no_such_task

MANIFEST = "sorted_output_pass_rule_names.json"
PASS_DIR = "pass_dir"
MAX_PROPOSALS = 5  # folders for which similar ids are proposed; each search takes 20 ms
_MANIFEST_REMEDY = 'write for example ["fuse_gelu", "fuse_add"]'
MAX_MANIFEST_BYTES = 1 << 20
MAX_PASSES = 1_000
MAX_STEM_BYTES = 250


@dataclass(frozen=True)
class PassDir:
    """A pass directory. ``stems`` are the file stems of its passes, in order.

    ``task_id`` is None for the directory that is common to all tasks. ``problem`` says why its manifest could not be
    read. It is empty if it could.
    """

    path: Path
    stems: tuple[str, ...]
    task_id: str | None = None
    problem: str = ""

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the passes in manifest order: syntax errors, and missing functions."""
        faults = (read_fault(self.path / f"{stem}.py") for stem in self.stems)
        return tuple(fault for fault in faults if fault is not None)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its passes: "pattern", "region", "inductor"; none if there are no passes."""
        return frozenset(pass_kind(self.path / f"{stem}.py") for stem in self.stems)

    @property
    def mistakes(self) -> str:
        """The problem if there is one, or else the faults, a line each. It is empty if the passes can be read."""
        return self.problem or "\n".join(map(str, self.faults))


@dataclass(frozen=True)
class Candidate:
    """A directory of passes. ``common`` is for each task that ``by_task`` does not name."""

    path: Path
    common: PassDir | None
    by_task: dict[str, PassDir] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Candidate:
        """Return the candidate at ``path``, with its manifests read.

        Raises UserError, with the file's name, for a folder that does not exist or is empty, for files that
        :func:`check_files` refuses, and for two folders of one task. It also does so for a mistake in the manifest of
        all tasks: it is missing or malformed, names a stem without a file, or has a link beside it that leads out.
        The same mistake in a single task's manifest is that directory's ``problem``.
        """
        path = Path(path)
        if (kind := kind_of(path)) != "folder":
            problems = {None: "does not exist", "file": "is a file"}
            problem = problems.get(kind) or f"is {described(path.stat().st_mode)}"
            raise UserError(f"the candidate directory {problem}", where=path, remedy="name a directory of passes")
        check_files(path)
        if not any(files(path)):
            raise UserError("the candidate directory is empty", where=path, remedy=f"put passes and {MANIFEST} in it")
        try:
            str(path.resolve()).encode()
        except UnicodeEncodeError:
            raise UserError("the folder's path is not UTF-8", where=path, remedy="rename it") from None
        common = _common(path)
        by_task = dict[str, PassDir]()
        for directory in _per_task(path, common):
            other = by_task.setdefault(directory.task_id or "", directory)
            if not other.path.samefile(directory.path):
                problem = f"{other.path} and {directory.path} are both for the task {directory.task_id}"
                raise UserError(problem, where=path, remedy="leave one of them out")
        if common is None and not by_task:
            raise _no_manifest(path)
        return cls(path, common, by_task)

    @property
    def name(self) -> str:
        """The folder's name. For a folder called ``pass_dir`` it is the parent's name."""
        resolved = self.path.resolve()
        return resolved.parent.name if resolved.name == PASS_DIR else resolved.name

    @cached_property
    def content_hash(self) -> str:
        """The SHA-256 (hexadecimal) of the relative names and contents of all files except caches."""
        return content_hash(self.path)

    @cached_property
    def passes(self) -> str:
        """The kinds of its passes in words, such as "inductor passes", "pattern and region passes" or "no passes"."""
        kinds = frozenset[str]().union(*(directory.kinds for directory in self.directories))
        return f"{' and '.join(sorted(kinds)) or 'no'} passes"

    @property
    def directories(self) -> tuple[PassDir, ...]:
        """The pass directories: the common one first, then the others by task id."""
        directories = [self.by_task[key] for key in sorted(self.by_task)]
        return ((self.common,) if self.common else ()) + tuple(directories)

    def passes_for(self, task_id: str) -> PassDir | None:
        """Return the pass directory for a task: its own, else the common one, else None."""
        return self.by_task.get(task_id, self.common)

    def folder(self, passes: PassDir) -> str:
        """Return a pass directory's path within the candidate; "" for the candidate itself."""
        relative = passes.path.resolve().relative_to(self.path.resolve()).as_posix()
        return "" if relative == "." else relative

    def for_no_task(self, known_ids: Iterable[str]) -> list[UserError]:
        """Return an error for each task's directory whose name is not the id of a known task."""
        task_ids = set(known_ids)
        strays = [(name, item.path) for name, item in sorted(self.by_task.items()) if name not in task_ids]
        return [
            no_such_task(task_id, () if number >= MAX_PROPOSALS else task_ids,
                         path.parent if path.name == PASS_DIR else path)
            for number, (task_id, path) in enumerate(strays)
        ]  # fmt: skip


def _common(path: Path) -> PassDir | None:
    for folder in (path, path / PASS_DIR):
        if (folder / MANIFEST).is_file():
            check_links(folder, path)
            return PassDir(folder, _read_stems(folder))
    if (path / PASS_DIR).is_dir() or any(path.glob("*.py")):
        raise _no_manifest(path / PASS_DIR if (path / PASS_DIR).is_dir() else path)
    return None


def _per_task(path: Path, common: PassDir | None) -> Iterator[PassDir]:
    for folder in folders(path):
        if common is not None and folder == common.path:
            continue
        task = folder.parent.name if folder.name == PASS_DIR else folder.name
        if (folder / MANIFEST).is_file():
            yield _task_directory(folder, task, path)
        elif folder.name == PASS_DIR or (common is None and _lacks_manifest(folder)):
            yield PassDir(folder, (), task, str(_no_manifest(folder)))


def _task_directory(folder: Path, task: str, root: Path) -> PassDir:
    """Return a task's own pass directory. A mistake in it costs this task alone."""
    try:
        check_links(folder, root)
        return PassDir(folder, _read_stems(folder), task)
    except UserError as error:
        return PassDir(folder, (), task, str(error))


def _lacks_manifest(folder: Path) -> bool:
    """Return True if the folder has Python files that belong to no pass directory.

    No folder above or below it has a manifest then, nor has the folder itself.
    """
    if not any(folder.glob("*.py")):
        return False
    above = any((parent / MANIFEST).is_file() for parent in folder.parents)
    return not above and not any(folder.rglob(MANIFEST))


def _no_manifest(folder: Path) -> UserError:
    remedy = f"write {MANIFEST}: the file stems of the passes in order of application"
    return UserError(f"no {MANIFEST} here", where=folder, remedy=remedy)


def _read_stems(folder: Path) -> tuple[str, ...]:
    file = folder / MANIFEST
    stems = read_manifest(file)
    for stem in stems:
        if not stem or Path(stem).name != stem or "\0" in stem or len(stem.encode()) > MAX_STEM_BYTES:
            raise UserError(
                f"{abbreviated(stem)} is not a file stem", where=file, remedy="name files beside the manifest"
            )
        if not (folder / f"{stem}.py").is_file():
            near = did_you_mean(stem, sorted(path.stem for path in folder.glob("*.py")))
            remedy = f"{near}{'else ' if near else ''}add the file, or take the name out"
            raise UserError(f"names {stem!r}, but there is no {stem}.py beside it", where=file, remedy=remedy)
    return tuple(stems)


def read_manifest(file: Path) -> list[str]:
    """Return the stems in a manifest, in whichever of JSON's encodings it is, with or without a byte order mark.

    Raises UserError for a file that is no manifest.
    """
    data = read_bytes(file, MAX_MANIFEST_BYTES)
    try:
        text = data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        raise UserError("is not text", where=file, remedy="save it as UTF-8") from None
    stems = parse_json(text, file, remedy=_MANIFEST_REMEDY)
    if not isinstance(stems, list) or not all(isinstance(stem, str) for stem in stems):
        raise UserError("not a JSON list of strings", where=file, remedy=_MANIFEST_REMEDY)
    if len(stems) > MAX_PASSES:
        raise UserError(f"names more than {MAX_PASSES:,} passes", where=file, remedy="leave some out")
    return stems
