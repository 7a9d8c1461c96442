"""Temporary folders of a judge, and sealed memory, through which compiled code gets into sandboxes.

A judge that is killed leaves its folders behind: the next one removes them. Each folder is locked by its judge. The
kernel drops the lock when the judge ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "passbench-scratch-"


class Scratch:
    """A new empty folder in ``parent``, by default that of temporary files. It lasts until :meth:`close`."""

    def __init__(self, parent: Path | None = None) -> None:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_abandoned(folder)
        while True:
            self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder, ignore_cleanup_errors=True)
            self.path = Path(self._folder.name)
            try:
                self._lock = _locked(self.path)
                break
            except (BlockingIOError, FileNotFoundError):  # another judge took it for abandoned
                self._folder.cleanup()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._folder.cleanup()
        os.close(self._lock)


def _locked(folder: Path) -> int:
    """Return a descriptor that holds a folder's lock. Raises OSError if it is taken, or if the folder is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino != os.fstat(descriptor).st_ino:
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose judges have ended."""
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if folder.lstat().st_uid != os.getuid():
                    continue
                lock = _locked(folder)
                try:
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)


def sealed(data: bytes) -> int:
    """Return a read-only descriptor of sealed memory that holds ``data``. The caller closes it."""
    writable = os.memfd_create("kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(writable), "wb") as file:
            file.write(data)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)
