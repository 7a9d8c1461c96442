"""A candidate on disk: its pass directories, and the tasks that each is for.

Files are read and parsed here, and never imported or executed. A mistake of the user (no such folder, no manifest)
raises UserError. A mistake of a pass's author (a syntax error) is a fault of the candidate. :attr:`PassDir.faults`
has it, and it is reported as failed cases.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_passbench.candidate.syntax import Fault, imports_triton, read_fault
from pytest_passbench.core.errors import UserError

MANIFEST = "sorted_output_pass_rule_names.json"
PASS_DIR = "pass_dir"
_CACHES = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"})


@dataclass(frozen=True)
class PassDir:
    """A pass directory. ``stems`` are the file stems of its passes, in order.

    ``task_id`` is None for the directory that is common to all tasks.
    """

    path: Path
    stems: tuple[str, ...]
    task_id: str | None = None

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the passes in manifest order: syntax errors, and missing functions."""
        found = (read_fault(self.path / f"{stem}.py", stem) for stem in self.stems)
        return tuple(fault for fault in found if fault is not None)

    @cached_property
    def uses_triton(self) -> bool:
        """True if a Python file of the directory imports Triton."""
        return _uses_triton(self.path)


@dataclass(frozen=True)
class Candidate:
    """A directory of passes. ``common`` is for each task that ``by_task`` does not name."""

    path: Path
    common: PassDir | None
    by_task: dict[str, PassDir] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Candidate:
        """Return the candidate at ``path``, with its manifests read.

        Raises UserError, with the file's name, for a folder that does not exist or is empty. So it does for a missing
        or malformed manifest, for a stem without a file, and for a symbolic link that leads outside.
        """
        path = Path(path)
        if not path.is_dir():
            problem = "is a file" if path.exists() else "does not exist"
            raise UserError(f"the candidate directory {problem}", where=path, remedy="name a directory of passes")
        _check_links(path)
        if not any(_files(path)):
            raise UserError("the candidate directory is empty", where=path, remedy=f"put passes and {MANIFEST} in it")
        common = _common(path)
        by_task = {found.task_id or "": found for found in _per_task(path, common)}
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
        digest = hashlib.sha256()
        for file in _files(self.path):
            for part in (file.relative_to(self.path).as_posix().encode(), _read(file)):
                digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    @property
    def directories(self) -> tuple[PassDir, ...]:
        """The pass directories: the common one first, then the others by task id."""
        own = [self.by_task[key] for key in sorted(self.by_task)]
        return ((self.common,) if self.common else ()) + tuple(own)

    @cached_property
    def uses_triton(self) -> bool:
        """True if a Python file of the candidate imports Triton."""
        return _uses_triton(self.path)

    def passes_for(self, task_id: str) -> PassDir | None:
        """Return the pass directory for a task: its own, else the common one, else None."""
        return self.by_task.get(task_id, self.common)

    def folder(self, passes: PassDir) -> str:
        """Return a pass directory's path within the candidate; "" for the candidate itself."""
        relative = passes.path.resolve().relative_to(self.path.resolve()).as_posix()
        return "" if relative == "." else relative

    def check_tasks(self, known_ids: Iterable[str]) -> None:
        """Raise UserError for a task's directory whose name is not the id of a known task."""
        known = set(known_ids)
        for task_id, found in sorted(self.by_task.items()):
            if task_id not in known:
                where = found.path.parent if found.path.name == PASS_DIR else found.path
                raise UserError(
                    f"no task is called {task_id!r}",
                    where=where,
                    remedy="see `passbench tasks list` for the ids",
                )


def _common(path: Path) -> PassDir | None:
    for folder in (path, path / PASS_DIR):
        if (folder / MANIFEST).is_file():
            return _read_pass_dir(folder, None)
    if (path / PASS_DIR).is_dir() or any(path.glob("*.py")):
        raise _no_manifest(path / PASS_DIR if (path / PASS_DIR).is_dir() else path)
    return None


def _per_task(path: Path, common: PassDir | None) -> Iterator[PassDir]:
    for folder in _folders(path):
        if common is not None and folder == common.path:
            continue
        if (folder / MANIFEST).is_file():
            task = folder.parent.name if folder.name == PASS_DIR else folder.name
            yield _read_pass_dir(folder, task)
        elif folder.name == PASS_DIR or (common is None and _lacks_manifest(folder)):
            raise _no_manifest(folder)


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


def _read_pass_dir(folder: Path, task_id: str | None) -> PassDir:
    file = folder / MANIFEST
    try:
        stems = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(
            f"not valid JSON: {error}", where=f"{file}{line}", remedy="write a list of file stems"
        ) from None
    if not isinstance(stems, list) or not all(isinstance(stem, str) for stem in stems):
        raise UserError(
            "not a JSON list of strings", where=file, remedy='write for example ["fuse_gelu", "fuse_add"]'
        )
    for stem in stems:
        if not stem or Path(stem).name != stem or "\0" in stem:
            raise UserError(f"{stem!r} is not a file stem", where=file, remedy="name files beside the manifest")
        if not (folder / f"{stem}.py").is_file():
            raise UserError(f"names {stem!r}, but there is no {stem}.py beside it", where=file, remedy="add the file")
    return PassDir(folder, tuple(stems), task_id)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=file, remedy="make it readable") from None


def _folders(path: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(path, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        yield from (Path(folder) / name for name in names)


def _uses_triton(path: Path) -> bool:
    return any(imports_triton(file) for file in _files(path) if file.suffix == ".py")


def _files(path: Path) -> Iterator[Path]:
    """Yield all files except caches, in a fixed order."""
    for folder, names, files in os.walk(path, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        for name in sorted(files):
            if not name.endswith((".pyc", ".pyo")):
                yield Path(folder) / name


def _unreadable(error: OSError) -> None:
    raise UserError(f"cannot be read: {error.strerror}", where=error.filename, remedy="make it readable")


def _check_links(path: Path) -> None:
    root = path.resolve()
    for folder, names, files in os.walk(path, onerror=_unreadable):
        for entry in (Path(folder) / name for name in (*names, *files)):
            if not entry.is_symlink():
                continue
            try:
                inside = entry.resolve(strict=True).is_relative_to(root)
            except (OSError, RuntimeError):
                raise UserError("a broken symbolic link", where=entry, remedy="remove it") from None
            if not inside:
                problem = "a symbolic link that leads out of the candidate"
                raise UserError(problem, where=entry, remedy="copy the file in")
