"""A user's files, with one message for each fault: only regular files up to a given size are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

from pytest_passbench.core.errors import UserError

_CHUNK_BYTES = 1 << 20
Kind = Literal["file", "folder", "other"]
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISDIR, "a folder"),
)


def kind_of(path: Path) -> Kind | None:
    """Return what a path leads to, links followed; None if there is nothing.

    Raises UserError if that cannot be found out: the name is too long, links form a cycle, or access is denied.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def described(mode: int) -> str:
    """Return words for a file that is not regular, by its mode."""
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "no regular file")


@contextmanager
def opened(path: Path, limit: int) -> Iterator[IO[bytes]]:
    """Open a regular file of at most ``limit`` bytes for reading. Raises UserError naming the file otherwise."""
    try:
        check_readable(path, path.stat(), limit)  # first: opening a device may have an effect
        # O_NONBLOCK: if a FIFO has taken the file's place since, opening it would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    with os.fdopen(descriptor, "rb") as file:
        check_readable(path, os.fstat(descriptor), limit)
        try:
            yield file
        except OSError as error:
            raise _unreadable(path, error) from None


def check_readable(path: Path, status: os.stat_result, limit: int) -> None:
    """Raise UserError unless ``status`` is that of a regular file of at most ``limit`` bytes."""
    if not stat.S_ISREG(status.st_mode):
        what = f"is {described(status.st_mode)}"
        raise UserError(what, where=path, remedy="only regular files are read: remove it, or put a file in its place")
    if status.st_size > limit:
        raise too_large(path, limit)


def too_large(path: Path, limit: int) -> UserError:
    """Return the error for a file of more than ``limit`` bytes."""
    return UserError(f"has more than {limit:,} bytes", where=path, remedy="make it smaller")


def read_bytes(path: Path, limit: int) -> bytes:
    """Return a regular file's contents, of at most ``limit`` bytes. Raises UserError naming the file otherwise."""
    with opened(path, limit) as file:
        # First as many bytes as the file's size says. Some files in /proc have contents, but a size of 0.
        data = file.read(os.fstat(file.fileno()).st_size + 1)
        while len(data) <= limit and (more := file.read(_CHUNK_BYTES)):
            data += more
    if len(data) > limit:
        raise too_large(path, limit)
    return data


def read_text(path: Path, limit: int) -> str:
    """Return a regular file's text, of at most ``limit`` bytes of UTF-8. Raises UserError for any other file."""
    return decode(read_bytes(path, limit), path)


def decode(data: bytes, path: Path) -> str:
    r"""Return UTF-8 text, without a byte order mark and with ``\n`` at the end of every line. Raises UserError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError("not UTF-8 text", where=f"{path}:{line}", remedy="save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Raise UserError, naming the file or folder ``path``, for an OSError within this context."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=path, remedy=remedy) from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file and create its folder. A reader sees the old file or the whole new one. Raises UserError."""
    # Two processes that write the same file must not write the same temporary file.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path, "name a folder that you may write to"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise


def _unreadable(path: Path, error: OSError | ValueError) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError("no such file", where=path, remedy="check the path")
    # A path with NUL, or one that cannot be encoded, raises ValueError.
    reason = error.strerror if isinstance(error, OSError) else "not the name of a file"
    return UserError(f"cannot be read: {reason}", where=path, remedy="check the path and its permissions")
