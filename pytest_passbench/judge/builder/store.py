"""A cache on disk that lasts from run to run: of compiled kernels, and of the graphs that passes match."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from pytest_passbench.core.paths import user_cache
from pytest_passbench.kernels.toolchain import is_private

MAX_CACHE_BYTES = 1 << 30  # on disk
PUTS_PER_LOOK = 16  # a look for old files among thousands takes a fifth of a compilation's time
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Return this user's folder for the store, which need not exist; None if the user has no home."""
    return user_cache("built")


class ContentStore:
    """A folder of the judge's user, which builders may share. It is made if need be.

    None, or a folder that cannot be made or that others can write to, stores nothing, since its files are loaded.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder: Path | None = None
        self._puts = 0
        with contextlib.suppress(OSError):
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder = folder if is_private(folder) else None

    def get(self, key: str) -> bytes | None:
        """Return the bytes under a key; None if there are none, or if their hash is wrong."""
        if self._folder is None:
            return None
        try:
            stored = (self._folder / key).read_bytes()
        except OSError:
            return None
        data = stored[_DIGEST_BYTES:]
        return data if hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES] else None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key, with their hash. If the file cannot be written, nothing is stored."""
        if self._folder is None:
            return
        temporary = self._folder / f"tmp{secrets.token_hex(8)}"
        try:
            temporary.write_bytes(hashlib.sha256(data).digest() + data)
            temporary.rename(self._folder / key)  # two builders may do so at once: the result of either is right
            if self._puts % PUTS_PER_LOOK == 0:
                _prune(self._folder)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
        self._puts += 1


def _prune(folder: Path) -> None:
    """Remove the oldest files, until all together have at most :data:`MAX_CACHE_BYTES`. Raises OSError."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another builder has renamed or removed it meanwhile
            files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    excess = sum(size for _modified, size, _path in files) - MAX_CACHE_BYTES
    for _modified, size, path in sorted(files):
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size
