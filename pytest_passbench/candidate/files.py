"""The files of a candidate: walking, reading, and checking links. Caches are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pytest_passbench.core.errors import UserError

_CACHES = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"})


def read(file: Path) -> bytes:
    """Return a file's contents. Raises UserError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=file, remedy="make it readable") from None


def folders(path: Path) -> Iterator[Path]:
    """Yield all folders below ``path``, in a fixed order. Raises UserError for one that cannot be read."""
    for folder, names, _ in os.walk(path, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        yield from (Path(folder) / name for name in names)


def files(path: Path) -> Iterator[Path]:
    """Yield all files below ``path``, in a fixed order. Raises UserError for a folder that cannot be read."""
    for folder, names, found in os.walk(path, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        for name in sorted(found):
            if not name.endswith((".pyc", ".pyo")):
                yield Path(folder) / name


def _unreadable(error: OSError) -> None:
    raise UserError(f"cannot be read: {error.strerror}", where=error.filename, remedy="make it readable")


def check_links(path: Path) -> None:
    """Raise UserError for a symbolic link that is broken or leads out of ``path``."""
    root = path.resolve()
    for folder, names, found in os.walk(path, onerror=_unreadable):
        for entry in (Path(folder) / name for name in (*names, *found)):
            if not entry.is_symlink():
                continue
            try:
                inside = entry.resolve(strict=True).is_relative_to(root)
            except (OSError, RuntimeError):
                raise UserError("a broken symbolic link", where=entry, remedy="remove it") from None
            if not inside:
                problem = "a symbolic link that leads out of the candidate"
                raise UserError(problem, where=entry, remedy="copy the file in")
