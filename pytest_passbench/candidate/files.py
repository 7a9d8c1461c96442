"""The files of a candidate's folder: checked before anything reads them, packed for its reader, and digested.

The checks are of their kinds, sizes, number and links.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import check_readable, read_bytes

MAX_FILE_BYTES = 64 << 20
MAX_BYTES = 256 << 20  # of all files
MAX_FILES = 50_000
MAX_DEPTH = 32  # of nested folders
_FOLDER = b"a folder"  # marks a folder in a digest; as the length of a file's name these 8 bytes would be too large
_CACHES = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"})


def check_files(root: Path) -> None:
    """Raise UserError, naming the file, unless all entries are readable regular files, folders and links.

    Their number and sizes have the limits above. Files in caches are not checked, because nothing reads them.
    """
    count = total = 0
    for folder, names, file_names in os.walk(root, onerror=_unreadable):
        parts = Path(folder).relative_to(root).parts
        if len(parts) > MAX_DEPTH:
            where = root.joinpath(*parts[:3])
            raise UserError(f"has more than {MAX_DEPTH} folders in each other", where=where, remedy="remove them")
        entries = [Path(folder) / name for name in (*names, *file_names)]
        names[:] = [name for name in names if name not in _CACHES]
        for entry in entries:
            try:
                status = entry.lstat()
            except FileNotFoundError:
                continue  # it was removed meanwhile
            except OSError as error:
                _unreadable(error)
            count += 1
            if not stat.S_ISLNK(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                check_readable(entry, status, MAX_FILE_BYTES)
                if not os.access(entry, os.R_OK):
                    raise UserError("cannot be read: Permission denied", where=entry, remedy="make it readable")
                total += status.st_size
        if count > MAX_FILES or total > MAX_BYTES:
            what = f"the candidate has more than {MAX_FILES:,} files and folders or {MAX_BYTES >> 20} MiB"
            raise UserError(what, where=root, remedy="leave only the passes and their helpers in it")


def files(root: Path) -> Iterator[Path]:
    """Yield all files except caches and links that lead nowhere or out of ``root``, in a fixed order."""
    inside = root.resolve()
    for folder, names, file_names in os.walk(root, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        for name in sorted(file_names):
            if not name.endswith((".pyc", ".pyo")) and _link_problem(path := Path(folder) / name, inside) is None:
                yield path


def folders(root: Path) -> Iterator[Path]:
    """Yield all folders below ``root`` except caches and links that lead out of it, in a fixed order."""
    inside = root.resolve()
    for folder, names, _ in os.walk(root, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _CACHES)
        yield from (path for name in names if _link_problem(path := Path(folder) / name, inside) is None)


def check_links(folder: Path, root: Path) -> None:
    """Raise UserError, naming the link, for a link in a folder that leads nowhere or out of ``root``."""
    inside = root.resolve()
    for path, names, file_names in os.walk(folder, onerror=_unreadable):
        for entry in (Path(path) / name for name in (*names, *file_names)):
            if (problem := _link_problem(entry, inside)) is not None:
                raise problem


def _link_problem(entry: Path, root: Path) -> UserError | None:
    """Return the error for a link that leads nowhere or out of ``root``, or None for any other entry."""
    if not entry.is_symlink():
        return None
    try:
        inside = entry.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return UserError("a broken symbolic link", where=entry, remedy="remove it")
    if inside:
        return None
    return UserError("a symbolic link that leads out of the candidate", where=entry, remedy="copy the file in")


def _unreadable(error: OSError) -> NoReturn:
    raise UserError(f"cannot be read: {error.strerror}", where=error.filename, remedy="make it readable")


def content_hash(root: Path) -> str:
    """Return the SHA-256 (hexadecimal) of the relative names and contents of all files, except caches, in order.

    Folders without a file count too, and links to folders with their targets. Raises UserError if a file cannot be
    read.
    """
    with Path(os.devnull).open("wb") as nowhere:
        return pack(root, nowhere)


def _framed(name: Path, data: bytes) -> bytes:
    """Return a file's name and contents, each behind its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in (os.fsencode(name), data))


def pack(root: Path, file: IO[bytes]) -> str:
    """Write all files of a folder, except caches, to ``file``, as tar. Return their :func:`content_hash`.

    A link to a folder stays a link. Raises UserError if a file cannot be read.
    """
    digest, inside, with_files = hashlib.sha256(), root.resolve(), set[Path]()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files(root):
            name, data = path.relative_to(root), read_bytes(path, MAX_FILE_BYTES)
            digest.update(_framed(name, data))
            with_files.update(name.parents)
            entry = tarfile.TarInfo(str(name))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for folder in folders(root):
            name = folder.relative_to(root)
            entry = tarfile.TarInfo(str(name))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            if folder.is_symlink():
                entry.type = tarfile.SYMTYPE
                entry.linkname = os.path.relpath(folder.resolve(), inside / name.parent)
            if entry.linkname or name not in with_files:
                digest.update(_FOLDER + _framed(name, os.fsencode(entry.linkname)))
            archive.addfile(entry)
    return digest.hexdigest()
