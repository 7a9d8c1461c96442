"""Layout of the heap that measured processes are forked with (docs/measuring-details.md).

A measured process pays for each page that its template used, when it starts and when it ends. So imported modules lie
in a mapped file. Before its first fork, a template gives its free memory back and fills the holes in its heap. Blocks
then allocate in one fresh piece at the heap's end, in huge pages.

All arms get the same heap. Its free end begins at the same address, and before that only the same pieces are free.
The addresses of outputs change a program's speed, and they must not depend on what a template happened to free.

The environment of the arms (``judge.arms.sandbox``) keeps glibc from trimming the heap and from leaving it. Without
huge pages, or with another C library, all this works too, but forking and warming up take longer.
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

PAGE_BYTES = 4096
HUGE_PAGE_BYTES = 2 << 20
LINE_BYTES = 64  # of a cache line
#: Bytes of address space to reserve at the heap's end: for the gap up to the common end, and for a block's outputs.
RESERVE_BYTES = 512 << 20
PIECE_BYTES, PIECES = 2048, 192  # size and number of the free pieces for small allocations
WALL_BYTES = 24  # of an allocation between two free pieces, since glibc would join neighbours
HEADER_BYTES = 8  # that glibc puts before each allocation
#: Sizes in bytes of the allocations that fill holes, the largest first. The small ones have each size class of glibc.
HOLES = (*(1 << exponent for exponent in range(27, 10, -1)), *range(PIECE_BYTES - HEADER_BYTES, HEADER_BYTES, -16))
CUTS = range(24, 136, 16)  # bytes that glibc may cut off an aligned allocation
CACHED_PER_SIZE = 7  # free allocations of each size that glibc keeps for a thread
#: The free end of a template's heap begins at a multiple of this, so it is the same in all arms of similar size.
HEAP_END_BYTES = 128 << 20
SHIFTS = tuple(1 << exponent for exponent in range(8, 21, 2))  # bytes; a random allocation has up to twice as many
#: Half the bytes from one depth of the stack to the next, since both ctypes and libffi copy the structure.
#: Together the depths reach all parts of a page and of a cache line.
DEPTH_BYTES = 136
_DONTNEED, _HUGEPAGE, _POPULATE_WRITE, _FIXED = 4, 14, 23, 0x10
_RAW = 0  # Python's allocation domain that uses malloc
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def _below(size: int) -> Callable[[Callable[[int, int], int], int, int], int]:
    """Return a function that calls its first argument on two numbers, about twice ``size`` bytes deeper in the stack.

    It passes a structure of ``size`` bytes by value, which is copied twice.
    """
    room = type("Room", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * size)]})
    form = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_uint, ctypes.c_uint, room)
    call, value = form(lambda run, first, second, _room: run(first, second)), room()
    return lambda run, first, second: call(run, first, second, value)


#: Made once, in the zygote, since making them in a measured process takes too long.
_DEPTHS = tuple(_below(DEPTH_BYTES * (depth + 1)) for depth in range(DEPTHS))


class _Usage(ctypes.Structure):
    """The structure ``mallinfo2`` of glibc. ``keepcost`` is the size of the heap's free end."""

    _fields_ = (*((f"field{number}", ctypes.c_size_t) for number in range(9)), ("keepcost", ctypes.c_size_t))


class _Arenas(ctypes.Structure):
    """The structure ``PyObjectArenaAllocator`` of Python: the allocator of memory for small objects."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "free"))


class _Allocator(ctypes.Structure):
    """The structure ``PyMemAllocatorEx`` of Python."""

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
    """A file in memory that holds all that a zygote allocates from now until :meth:`keep`, while it imports modules.

    A fork copies a table entry for each page of an ordinary heap, and counts each page's users. The end of the
    process counts them again. That takes milliseconds for what torch allocates when it is imported. Pages of a file
    are only looked up when they are needed, and few of them are.
    """

    def __init__(self) -> None:
        self._file = -1
        if not _one_heap():
            return
        self._start = _up(_free_start() + LINE_BYTES, PAGE_BYTES)
        size = _down(_libc.sbrk(0), PAGE_BYTES) - self._start
        try:
            file = os.memfd_create("imports", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(file, size)
            _map(self._start, size, mmap.MAP_SHARED, file)
        except OSError:  # some machines do not allow files in memory
            return
        self._file = file
        self._arenas = _take_small_objects_from_the_heap()

    def keep(self) -> None:
        """Seal the file and map it privately: a process that writes to a page gets a copy of its own.

        The heap goes on behind it in ordinary memory, of :data:`RESERVE_BYTES`, in huge pages if the kernel has them.
        Raises OSError if mapping fails.
        """
        whole = _one_heap()
        used = _up(_free_start()) + HUGE_PAGE_BYTES  # the calls from here on may use a little more
        size = _down(_libc.sbrk(0), PAGE_BYTES) - used
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
    """Make Python allocate its small objects with malloc. Return the allocator that it had before."""
    before, raw = _Arenas(), _Allocator()
    _pythonapi.PyObject_GetArenaAllocator(ctypes.byref(before))
    _pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(raw))
    _pythonapi.PyObject_SetArenaAllocator(ctypes.byref(_Arenas(raw.context, raw.malloc, raw.free)))
    return before


def _one_heap() -> bool:
    """Reserve :data:`RESERVE_BYTES` at the heap's end. Return False if the C library puts large pieces elsewhere."""
    _libc.free(_libc.malloc(RESERVE_BYTES))
    return bool(_libc.sbrk(0) - _free_start() >= RESERVE_BYTES)


def _map(start: int, size: int, flags: int, file: int) -> None:
    if _libc.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, flags | _FIXED, file, 0) != start:
        raise OSError(f"{size} bytes at {start:#x} can't be mapped")


def release() -> tuple[int, int]:
    """Give free memory back and make the free end of the heap the same in all arms.

    A template calls this last before its first fork. Return the address and the bytes of the room for small
    allocations, or zeros with another C library than glibc.
    """
    if not hasattr(_libc, "mallinfo2"):
        return 0, 0
    _libc.malloc_trim(ctypes.c_size_t(RESERVE_BYTES))
    end = _free_start()
    for size in HOLES:
        _fill(size, end)
    _go_to_common_end()
    pieces = _leave_pieces()
    first, last = _up(_free_start() + LINE_BYTES), _down(_libc.sbrk(0))  # free memory begins with a header
    if first < last:
        _libc.madvise(first, last - first, _DONTNEED)
    return pieces


def displace(chance: random.Random, pieces: tuple[int, int]) -> None:
    """Touch the ``pieces`` that :func:`release` returned, and move later allocations by random distances.

    A measured process calls this before it allocates anything. glibc uses the pieces in turn. If they were not
    touched here, each block would touch some for the first time.

    The addresses of memory change a program's speed by a few per cent: for example, they decide which buffers share
    cache sets. All forks of a template would have the same addresses. So each pair gets others. That turns a bias,
    which no interval shows, into chance, which the intervals include (Curtsinger and Berger 2013, "STABILIZER").
    """
    start, size = pieces
    first_page = _down(start, PAGE_BYTES)
    _libc.madvise(first_page, start + size - first_page, _POPULATE_WRITE)
    for size in SHIFTS:
        _libc.malloc(size + LINE_BYTES * chance.randrange(size // LINE_BYTES))


class Spacer:
    """An allocation that a measured process makes before each block, to move the block's own allocations.

    Its size is drawn for each depth of the stack, so the addresses vary by chance within a pair too. It is at most
    ``outputs`` bytes, the size of a call's outputs, but at least a cache line. It is largest at the last depth. The
    memory up to its end is touched here, and the memory behind it by warming up at that depth.
    """

    def __init__(self, chance: random.Random, outputs: int) -> None:
        lines = max(1, min(outputs, HUGE_PAGE_BYTES) // LINE_BYTES)
        self._sizes = [LINE_BYTES * chance.randint(1, lines) for _ in range(DEPTHS - 1)] + [LINE_BYTES * lines]
        self._room = PIECE_BYTES + self._sizes[-1] + outputs
        _fill_caches()
        self._start = self._free()
        self._block = _libc.malloc(self._sizes[-1])
        ctypes.memset(self._block, 0, self._sizes[-1])

    def take(self, depth: int) -> None:
        """Replace the allocation by one of this depth's size."""
        _libc.free(self._block)
        if self._free() != self._start:  # a small allocation has left glibc's caches and splits the free memory
            _fill_caches()
            self._start = self._free()
        self._block = _libc.malloc(self._sizes[depth])

    def _free(self) -> int:
        """Return the address of free memory for this allocation and the outputs, outside of the small pieces."""
        place = _libc.malloc(self._room) or 0
        _libc.free(place)
        return int(place)


def at_depths(run: Callable[[int, int, int], int]) -> list[Callable[[int, int], int]]:
    """Return a function for each of :data:`DEPTHS` depths of the stack. It calls ``run`` with the depth's number.

    Addresses in the stack change a program's speed as those in the heap do (Mytkowicz et al. 2009, "Producing Wrong
    Data Without Doing Anything Obviously Wrong"). A structure that is passed by value fills the distance, so all
    depths cost the same. Frames of Python cannot fill it: they lie in pieces of 16 KiB, and each call across the end
    of a piece gets a new one from the kernel.
    """
    return [partial(below, partial(run, depth)) for depth, below in enumerate(_DEPTHS)]


def _fill(size: int, end: int) -> None:
    """Allocate all holes of at least ``size`` bytes before ``end`` for good. That takes addresses, not memory."""
    while (place := _libc.malloc(size) or end) < end:
        pass
    if place != end:
        _libc.free(place)


def _go_to_common_end() -> None:
    """Allocate the heap's free end up to a multiple of :data:`HEAP_END_BYTES`, and at least a page of it.

    An allocation of less than a page might fit elsewhere.
    """
    start = _free_start()
    _libc.malloc(_up(start + PAGE_BYTES, HEAP_END_BYTES) - start - HEADER_BYTES)


def _leave_pieces() -> tuple[int, int]:
    """Make room for small allocations, of the same form in all arms. Return its address and its bytes.

    A small allocation at the heap's end would split the free memory there in two.
    """
    places = (ctypes.c_void_p * PIECES).from_address(_libc.malloc(PIECES * 8))  # a list would leave holes
    for number in range(PIECES):
        places[number] = _libc.malloc(PIECE_BYTES)
        last = _libc.malloc(WALL_BYTES)
    for place in places:
        _libc.free(place)
    first = int(places[0] or 0)
    return first, last - first


def _fill_caches() -> None:
    """Fill the caches that glibc has for a thread with allocations in the pieces.

    A cache with room would keep what glibc cuts off aligned allocations, right between large ones. For each size, one
    allocation more is freed than the cache takes: the one at the highest address, where the cut-off pieces lie.
    """
    for size in CUTS:
        for place in sorted(_libc.malloc(size) for _ in range(CACHED_PER_SIZE + 1)):
            _libc.free(place)


def _free_start() -> int:
    """Return the address of the heap's free end, or the heap's end with another C library than glibc."""
    if not hasattr(_libc, "mallinfo2"):
        return int(_libc.sbrk(0))
    _libc.mallinfo2.restype = _Usage
    return int(_libc.sbrk(0) - _libc.mallinfo2().keepcost)


def _up(address: int, size: int = HUGE_PAGE_BYTES) -> int:
    return -(-address // size) * size


def _down(address: int, size: int = HUGE_PAGE_BYTES) -> int:
    return address // size * size
