"""A candidate's files, packed for the sandbox that reads them, and their digest."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pytest_passbench.candidate.files import MAX_FILE_BYTES, files, folders
from pytest_passbench.core.files import read_bytes


class Digest:
    """The SHA-256 (hexadecimal, as :meth:`__str__`) of files: of their relative names and contents, in order."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, name: Path, data: bytes) -> None:
        """Add a file."""
        for part in (os.fsencode(name), data):
            self._sha.update(len(part).to_bytes(8, "little") + part)

    def __str__(self) -> str:
        return self._sha.hexdigest()


def content_hash(root: Path) -> str:
    """Return the digest of all files of a folder, except caches. Raises UserError if one cannot be read."""
    digest = Digest()
    for name, data in _contents(root):
        digest.add(name, data)
    return str(digest)


def pack(root: Path, file: IO[bytes]) -> str:
    """Write all files of a folder, except caches, to ``file``, as tar. Return the digest of what was written.

    A link to a folder stays a link. Raises UserError if a file cannot be read.
    """
    digest, inside = Digest(), root.resolve()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in _contents(root):
            digest.add(name, data)
            entry = tarfile.TarInfo(str(name))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for folder in folders(root):
            entry = tarfile.TarInfo(str(folder.relative_to(root)))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            if folder.is_symlink():
                entry.type = tarfile.SYMTYPE
                entry.linkname = os.path.relpath(folder.resolve(), inside / folder.relative_to(root).parent)
            archive.addfile(entry)
    return str(digest)


def _contents(root: Path) -> Iterator[tuple[Path, bytes]]:
    for file in files(root):
        yield file.relative_to(root), read_bytes(file, MAX_FILE_BYTES)
