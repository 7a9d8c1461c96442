"""Compiled kernels by content: kept on disk from run to run, and handed to a sandbox as memory nobody can change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from pytest_passbench.core.errors import UserError

MAX_CACHE_BYTES = 1 << 30  # on disk
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Return where built kernels are kept from run to run: a folder of this user's; None if there is no home."""
    home = os.environ.get("XDG_CACHE_HOME") or (f"{os.environ['HOME']}/.cache" if "HOME" in os.environ else None)
    if home is None or not os.access(Path(home) if Path(home).exists() else Path(home).parent, os.W_OK):
        return None
    return Path(home) / "passbench" / "built"


class Store:
    """A folder of the judge's user, which several builders may share; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = _private(folder) if folder is not None else None

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key, if it is whole."""
        if self._folder is None:
            return None
        try:
            stored = (self._folder / key).read_bytes()
        except OSError:
            return None
        data = stored[_DIGEST_BYTES:]
        return data if hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES] else None

    def put(self, key: str, data: bytes) -> None:
        """Keep something under a key."""
        if self._folder is None:
            return
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(hashlib.sha256(data).digest() + data)
        Path(file.name).rename(self._folder / key)  # of two builders that race, either's work is right
        _prune(self._folder)


def sealed(data: bytes) -> int:
    """Return a descriptor of ``data`` that nobody can write through or change; the caller closes it."""
    writable = os.memfd_create("kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(writable), "wb") as file:
            file.write(data)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def _prune(folder: Path) -> None:
    """Remove the files that were made first, if there are more than :data:`MAX_CACHE_BYTES` of them."""
    found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder))
    excess = sum(size for _made, size, _path in found) - MAX_CACHE_BYTES
    for _made, size, path in found:
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size


def _private(folder: Path) -> Path:
    """Make ``folder`` if need be; only its user may write there, since what lies in it is loaded."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid():
        raise UserError("the folder for compiled kernels belongs to another user", where=folder)
    if state.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
