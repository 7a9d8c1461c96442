"""The files of a candidate's folder, looked over before anything reads them: their kinds, sizes, number and links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import check_readable

MAX_FILE_BYTES = 64 << 20
MAX_BYTES = 256 << 20  # of all files
MAX_FILES = 10_000
MAX_DEPTH = 32  # of folders in each other
_CACHES = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"})


def check_files(root: Path) -> None:
    """Raise UserError, naming the file, unless all is regular files that can be read, folders, and links within.

    There may be no more of them than the limits above say. In caches only links are looked at: no one reads the rest.
    """
    inside, count, total = root.resolve(), 0, 0
    for folder, names, found in os.walk(root, onerror=_unreadable):
        parts = Path(folder).relative_to(root).parts
        if len(parts) > MAX_DEPTH:
            where = root.joinpath(*parts[:3])
            raise UserError(f"has more than {MAX_DEPTH} folders in each other", where=where, remedy="remove them")
        for entry in (Path(folder) / name for name in (*names, *found)):
            status = entry.lstat()
            if stat.S_ISLNK(status.st_mode):
                _check_link(entry, inside)
            elif not stat.S_ISDIR(status.st_mode) and _CACHES.isdisjoint(parts):
                _check_file(entry, status)
                count += 1
                total += status.st_size
        if count > MAX_FILES or total > MAX_BYTES:
            what = f"the candidate has more than {MAX_FILES:,} files or {MAX_BYTES >> 20} MiB"
            raise UserError(what, where=root, remedy="leave only the passes and their helpers in it")


def files(root: Path) -> Iterator[Path]:
    """Yield all files except caches, in a fixed order."""
    for folder, names, found in os.walk(root, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        for name in sorted(found):
            if not name.endswith((".pyc", ".pyo")):
                yield Path(folder) / name


def folders(root: Path) -> Iterator[Path]:
    """Yield all folders below ``root`` except caches, in a fixed order."""
    for folder, names, _ in os.walk(root, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        yield from (Path(folder) / name for name in names)


def _check_file(file: Path, status: os.stat_result) -> None:
    check_readable(file, status, MAX_FILE_BYTES)
    if not os.access(file, os.R_OK):
        raise UserError("cannot be read: Permission denied", where=file, remedy="make it readable")


def _check_link(entry: Path, root: Path) -> None:
    try:
        inside = entry.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        raise UserError("a broken symbolic link", where=entry, remedy="remove it") from None
    if not inside:
        problem = "a symbolic link that leads out of the candidate"
        raise UserError(problem, where=entry, remedy="copy the file in")


def _unreadable(error: OSError) -> None:
    raise UserError(f"cannot be read: {error.strerror}", where=error.filename, remedy="make it readable")
