"""Machine code that was made at run time: where it lies, and that nobody writes to it in a measured process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_PAGE = 4096
_READ, _WRITE, _EXECUTE = 1, 2, 4
_libc = ctypes.CDLL(None)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p


@dataclass(frozen=True)
class CodePages:
    """A piece of memory with code of no file (a JIT's): its first page, bytes, rights, and the pages that it uses."""

    start: int
    size: int
    rights: int
    used: list[int]


def made_here() -> list[CodePages]:
    """In a template, before its first fork: what was compiled here."""
    kinds = {"rwxp": _READ | _WRITE | _EXECUTE, "r-xp": _READ | _EXECUTE}
    found = [(start, end, number) for name, number in kinds.items() for start, end in _nameless(name)]
    return [CodePages(start, end - start, number, _used(start, end)) for start, end, number in found]


def own(pieces: list[CodePages]) -> None:
    """In a measured process: have these pieces of code in pages of its own, by writing to each what is there. Nobody
    can write to them afterwards: what a compiler left writable would be room for machine code made later.

    Where in the machine's memory the template's lie made oneDNN's gelu 5 to 20 % slower in one arm, in each of its
    forks alike: a bias, in a place that moving the heap does not reach. CodePages in files is not moved; all arms
    share it, but for what a candidate brings.
    """
    for piece in pieces:
        if not _libc.mprotect(piece.start, piece.size, _READ | _WRITE):
            for page in piece.used:
                ctypes.memmove(page, page, 1)
            _libc.mprotect(piece.start, piece.size, piece.rights & ~_WRITE)


def seal(maps: int) -> None:
    """In a measured process that compiled more: let nobody write to it any more. ``maps`` is the open file
    ``/proc/self/maps``, which is closed."""
    parts = list(iter(partial(os.read, maps, 1 << 16), b""))
    os.close(maps)
    for start, end in _nameless_in(b"".join(parts).decode(), "rwxp"):
        _libc.mprotect(start, end - start, _READ | _EXECUTE)


def _used(start: int, end: int) -> list[int]:
    """The pages between that are in memory; a JIT may have reserved many more."""
    flags = (ctypes.c_ubyte * ((end - start) // _PAGE))()
    _libc.mincore(start, end - start, flags)
    return [start + _PAGE * index for index, flag in enumerate(flags) if flag & 1]


def _nameless(wanted: str) -> Iterator[tuple[int, int]]:
    """Where the heap and other memory of no file lies that has exactly these rights."""
    return _nameless_in(Path("/proc/self/maps").read_text(), wanted)


def _nameless_in(maps: str, wanted: str) -> Iterator[tuple[int, int]]:
    for line in maps.splitlines():
        place, rights, _offset, _device, _inode, *name = line.split()
        if rights == wanted and name in ([], ["[heap]"]):
            start, end = (int(part, 16) for part in place.split("-"))
            yield start, end
