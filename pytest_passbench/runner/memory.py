"""The memory that measured processes are forked with: little of it their own, without holes, laid out anew in each.

A measured process pays for every page of its own that its template has used, when it is made and when it ends; so
what is imported lies in a file, mapped. What a template's own calls left in free memory would have to be copied for
nothing, and holes between what is in use would be found again by one block after the other; so both go before the
first fork, and all that a block allocates lies in one fresh piece at the heap's end, in huge pages.

All arms get the same heap: its free end begins where all others' do, and the only other free room is the same
pieces. Where outputs lie, and in how many places in turn, made the same program up to 16 % faster or slower while it
was left to what a template had happened to free.

It relies on the arms' environment (``judge.sandbox``), by which glibc neither trims the heap nor goes past it.
Elsewhere (no huge pages, another C library) everything works, and forking and warming up take longer.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
from collections.abc import Callable
from functools import partial

from pytest_passbench.protocol import DEPTHS

PAGE = 4096
HUGE = 2 << 20  # bytes of a huge page
LINE = 64  # bytes of a cache line
#: Bytes of address space at the heap's end: up to the common end, the outputs of a block, and what comes between.
RESERVE = 512 << 20
PIECE, PIECES = 2048, 192  # bytes of a free piece for small allocations, and how many there are
WALL = 24  # bytes between two of them: neighbours would become one
HEADER = 8  # bytes that an allocation has before it
#: Bytes, the largest first; of the small ones each size that glibc tells apart.
HOLES = (*(1 << exponent for exponent in range(27, 10, -1)), *range(PIECE - HEADER, HEADER, -16))
CUTS = range(24, 136, 16)  # bytes that may be cut off an aligned allocation,
CACHED = 7  # and of each size so many are kept by glibc, for the thread
#: A template's heap ends at a multiple of so many bytes: the same for all arms, unless one has used far more.
COMMON = 128 << 20
SHIFTS = tuple(1 << exponent for exponent in range(8, 21, 2))  # bytes: for small allocations and large ones
#: Bytes from one depth of the stack to the next, twice: ctypes and libffi copy the structure each. Together the
#: depths reach all parts of a page, and of a cache line.
STEP = 136
_DONTNEED, _HUGEPAGE, _POPULATE_WRITE, _FIXED = 4, 14, 23, 0x10
_RAW = 0  # the domain of Python's memory that is C's own
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def _below(size: int) -> Callable[[Callable[[int, int], int], int, int], int]:
    """A call of what it is given, on two numbers, below a structure of ``size`` bytes that is passed by value."""
    room = type("Room", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * size)]})
    form = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_uint, ctypes.c_uint, room)
    call, value = form(lambda run, first, second, _room: run(first, second)), room()
    return lambda run, first, second: call(run, first, second, value)


#: Made once: in a measured process it would take a millisecond.
_DEPTHS = tuple(_below(STEP * (depth + 1)) for depth in range(DEPTHS))


class _Usage(ctypes.Structure):
    """glibc's ``struct mallinfo2``; ``keepcost`` is the size of the heap's free end."""

    _fields_ = (*((f"field{number}", ctypes.c_size_t) for number in range(9)), ("keepcost", ctypes.c_size_t))


class _Arenas(ctypes.Structure):
    """Python's ``PyObjectArenaAllocator``: where its small objects' memory comes from."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "free"))


class _Allocator(ctypes.Structure):
    """Python's ``PyMemAllocatorEx``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))


_pythonapi = ctypes.pythonapi
_libc = ctypes.CDLL(None)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.malloc.argtypes, _libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
_libc.free.argtypes = (ctypes.c_void_p,)
_libc.sbrk.argtypes, _libc.sbrk.restype = (ctypes.c_ssize_t,), ctypes.c_void_p


class Imports:
    """What a zygote imports, kept in a file in memory: from now until :meth:`keep`, all that it allocates.

    A fork copies a table entry for each page of an ordinary heap, and counts each page's users, in the end once
    more: for what torch leaves behind when it is imported, twice 2.5 ms. Pages of a file are looked up when they are
    needed, and few are.
    """

    def __init__(self) -> None:
        self._file = -1
        if not _one_heap():
            return
        self._start = _up(_free_start() + LINE, PAGE)
        size = _down(_libc.sbrk(0), PAGE) - self._start
        try:
            file = os.memfd_create("imports", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(file, size)
            _map(self._start, size, mmap.MAP_SHARED, file)
        except OSError:  # there are machines that allow no such files
            return
        self._file = file
        self._arenas = _take_small_objects_from_the_heap()

    def keep(self) -> None:
        """Nothing changes this any more: whoever writes to a page gets one of its own. What comes after it is
        ordinary memory, :data:`RESERVE` bytes of it, in huge pages where the kernel has them. Raises OSError."""
        whole = _one_heap()
        used = _up(_free_start()) + HUGE  # the calls from here on may use a little more
        size = _down(_libc.sbrk(0), PAGE) - used
        if self._file >= 0:
            if not whole:
                raise OSError("no memory left for the heap")
            _pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self._arenas))
            _map(used, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
            _map(self._start, used - self._start, mmap.MAP_PRIVATE, self._file)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, _SEALS)
            os.close(self._file)
        if whole:
            _libc.madvise(used, size, _HUGEPAGE)


def _take_small_objects_from_the_heap() -> _Arenas:
    """Let Python have C's own memory for its small objects; what it had before."""
    before, raw = _Arenas(), _Allocator()
    _pythonapi.PyObject_GetArenaAllocator(ctypes.byref(before))
    _pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(raw))
    _pythonapi.PyObject_SetArenaAllocator(ctypes.byref(_Arenas(raw.context, raw.malloc, raw.free)))
    return before


def _one_heap() -> bool:
    """Have :data:`RESERVE` bytes at the heap's end. False where large pieces are not taken from there."""
    _libc.free(_libc.malloc(RESERVE))
    return bool(_libc.sbrk(0) - _free_start() >= RESERVE)


def _map(start: int, size: int, flags: int, file: int) -> None:
    if _libc.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, flags | _FIXED, file, 0) != start:
        raise OSError(f"{size} bytes at {start:#x} can't be mapped")


def release() -> tuple[int, int]:
    """In a template, as the last thing before its first fork: let go of what is free, and leave all arms the same.

    Where room for small allocations begins, and how many bytes it is.
    """
    if not hasattr(_libc, "mallinfo2"):
        return 0, 0
    _libc.malloc_trim(ctypes.c_size_t(RESERVE))
    end = _free_start()
    for size in HOLES:
        _fill(size, end)
    _go_to_common_end()
    pieces = _leave_pieces()
    first, last = _up(_free_start() + LINE), _down(_libc.sbrk(0))  # what is free begins with a header of its own
    if first < last:
        _libc.madvise(first, last - first, _DONTNEED)
    return pieces


def displace(chance: random.Random, pieces: tuple[int, int]) -> None:
    """In a measured process, before it allocates anything: take the ``pieces`` (see :func:`release`) for its own, and
    move all that comes by random distances.

    glibc goes through all pieces in turn: left to the blocks, each would touch some for the first time.

    Where memory lies (which buffers share cache sets, say) makes the same program a few per cent faster or slower,
    and all forks of a template would have it alike. So each pair has it elsewhere: chance from pair to pair, which
    the intervals know of, instead of a bias that they don't (Curtsinger and Berger 2013, "STABILIZER").
    """
    _libc.madvise(_down(pieces[0], PAGE), pieces[1], _POPULATE_WRITE)
    for size in SHIFTS:
        _libc.malloc(size + LINE * chance.randrange(size // LINE))


class Spacer:
    """Memory that a measured process takes before each block, another size at each depth of the stack: what the
    block allocates then lies elsewhere, so that where it lies is chance within a pair too.

    It is as large as the outputs of a call at the most, ``outputs`` bytes: a block of many small ones has them in
    many places. At the last depth it is the largest; what is before its end is touched here, what is behind it by
    warming up there.
    """

    def __init__(self, chance: random.Random, outputs: int) -> None:
        lines = max(1, min(outputs, HUGE) // LINE)
        self._sizes = [LINE * chance.randint(1, lines) for _ in range(DEPTHS - 1)] + [LINE * lines]
        self._room = PIECE + self._sizes[-1] + outputs
        _fill_caches()
        self._start = self._free()
        self._taken = _libc.malloc(self._sizes[-1])
        ctypes.memset(self._taken, 0, self._sizes[-1])

    def take(self, depth: int) -> None:
        """Take the size of this depth, instead of the last one."""
        _libc.free(self._taken)
        if self._free() != self._start:  # something small has left the caches, and something lies in between instead
            _fill_caches()
            self._start = self._free()
        self._taken = _libc.malloc(self._sizes[depth])

    def _free(self) -> int:
        """Where there is room for this and the outputs, and no piece has any."""
        place = _libc.malloc(self._room) or 0
        _libc.free(place)
        return int(place)


def at_depths(run: Callable[[int, int, int], int]) -> list[Callable[[int, int], int]]:
    """``run`` at each of :data:`DEPTHS` depths of the stack, at one cost: below a structure that is passed by value.
    It is told the depth's number first.

    As with the heap, and for the same reason (of the stack: Mytkowicz et al. 2009, "Producing Wrong Data Without
    Doing Anything Obviously Wrong"). Python's own frames must not be what takes the room: they lie in pieces of
    16 KiB of their own, and a call that crosses the end of one gets a new one from the kernel every time (7 us).
    """
    return [partial(below, partial(run, depth)) for depth, below in enumerate(_DEPTHS)]


def _fill(size: int, end: int) -> None:
    """Take all holes of at least ``size`` bytes before ``end``, for good: only addresses, not memory."""
    while (place := _libc.malloc(size) or end) < end:
        pass
    if place != end:
        _libc.free(place)


def _go_to_common_end() -> None:
    """Take what lies between the heap's free end and the next multiple of :data:`COMMON`; of less than a page
    something might still be free elsewhere."""
    start = _free_start()
    _libc.malloc(_up(start + PAGE, COMMON) - start - HEADER)


def _leave_pieces() -> tuple[int, int]:
    """Give small allocations room of the same form in all arms, elsewhere than at the heap's end: one that lies
    there keeps what was freed before it apart from what is free behind it, for as long as it lives."""
    places = (ctypes.c_void_p * PIECES).from_address(_libc.malloc(PIECES * 8))  # a list would leave holes of its own
    for number in range(PIECES):
        places[number] = _libc.malloc(PIECE)
        last = _libc.malloc(WALL)
    for place in places:
        _libc.free(place)
    first = int(places[0] or 0)
    return first, last - first


def _fill_caches() -> None:
    """Let what a thread keeps for itself lie in the pieces: with room there it would keep what is cut off aligned
    allocations, right between large ones. Of each size the last in memory, where those lie, is one too many."""
    for size in CUTS:
        for place in sorted(_libc.malloc(size) for _ in range(CACHED + 1)):
            _libc.free(place)


def _free_start() -> int:
    """Where the heap's unused end begins; its end where nobody knows."""
    if not hasattr(_libc, "mallinfo2"):
        return int(_libc.sbrk(0))
    _libc.mallinfo2.restype = _Usage
    return int(_libc.sbrk(0) - _libc.mallinfo2().keepcost)


def _up(address: int, size: int = HUGE) -> int:
    return -(-address // size) * size


def _down(address: int, size: int = HUGE) -> int:
    return address // size * size
