"""Machine code made at run time: finding it, and protecting it from writes in measured processes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_passbench.walls.harden import libc

_PAGE_BYTES = 4096
_READ, _WRITE, _EXECUTE = 1, 2, 4
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
libc.mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p


@dataclass(frozen=True)
class CodePages:
    """A piece of memory with code of a JIT, in no file.

    ``start`` is its address, ``size`` its bytes, ``rights`` those of ``mprotect``. ``used`` are the addresses of the
    pages that are in memory.
    """

    start: int
    size: int
    rights: int
    used: list[int]


def made_here() -> list[CodePages]:
    """Return the code that was compiled in this process. A template calls this before its first fork."""
    kinds = {"rwxp": _READ | _WRITE | _EXECUTE, "r-xp": _READ | _EXECUTE}
    maps = Path("/proc/self/maps").read_text()
    return [
        CodePages(start, end - start, rights, _used(start, end))
        for name, rights in kinds.items()
        for start, end in _nameless(maps, name)
    ]


def make_private(pieces: list[CodePages]) -> None:
    """Copy these pieces of code to pages of this process, and make them read-only.

    A measured process calls this. It writes to each page what is there, which makes the kernel copy the page. Pages
    that a compiler left writable would be room for other machine code.

    The physical place of the template's pages changes the speed of code (docs/measuring-details.md). It is the same
    in all forks of a template, which is a bias, and moving the heap does not change it. Code in files is not copied.
    All arms share it, except what a candidate brings.
    """
    for piece in pieces:
        if not libc.mprotect(piece.start, piece.size, _READ | _WRITE):
            for page in piece.used:
                ctypes.memmove(page, page, 1)
            libc.mprotect(piece.start, piece.size, piece.rights & ~_WRITE)


def seal(maps: int) -> None:
    """Make all code read-only that this process has compiled.

    A measured process calls this. It cannot open files, so ``maps`` is a descriptor of ``/proc/self/maps`` that was
    opened earlier. This function closes it.
    """
    parts = list(iter(partial(os.read, maps, 1 << 16), b""))
    os.close(maps)
    for start, end in _nameless(b"".join(parts).decode(), "rwxp"):
        libc.mprotect(start, end - start, _READ | _EXECUTE)


def _used(start: int, end: int) -> list[int]:
    """Return the pages of a range that are in memory. A JIT may have reserved many more."""
    flags = (ctypes.c_ubyte * ((end - start) // _PAGE_BYTES))()
    libc.mincore(start, end - start, flags)
    return [start + _PAGE_BYTES * index for index, flag in enumerate(flags) if flag & 1]


def _nameless(maps: str, permissions: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges in ``maps`` that have exactly these rights and no file. The heap is one of them."""
    for line in maps.splitlines():
        place, rights, _offset, _device, _inode, *name = line.split()
        if rights == permissions and name in ([], ["[heap]"]):
            start, end = (int(part, 16) for part in place.split("-"))
            yield start, end
