"""Functions to watch and stop processes of a sandbox from outside: signals, CPU clocks, memory, machine code.

The kernel gives a process its own copy of each page of a private mapping that it writes to. All other pages are still
the judge's memory, so the judge need not read them to know their contents.
Source: ``Documentation/admin-guide/mm/pagemap.rst`` of the Linux kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_MAX_FILE_BYTES = 1 << 16  # read of a file of /proc
_INNER = re.compile(r"^NSpid:.*?(\d+)$", re.M)
_RESIDENT, _SHARE = re.compile(rb"^\d+ (\d+)"), re.compile(rb"^Pss: +(\d+) kB$", re.M)
#: The files of libraries that kernels call: of mathematics, and of OpenMP.
_KERNELS_LIBRARIES = re.compile(r"(?:.*/)?lib(?:m|mvec|gomp)[-.][^/]*")
_libc = ctypes.CDLL(None, use_errno=True)
for _function in (_libc.process_vm_readv, _libc.process_vm_writev):
    _function.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
    ]  # fmt: skip
    _function.restype = ctypes.c_ssize_t
PAGE = mmap.PAGESIZE
_PRESENT, _SWAPPED, _SHARED = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)
_ENTRY_BYTES = 8  # of pagemap for each page


class Gone(Exception):
    """The process ended, or can't be read."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_memory(pid: int, address: int, size: int) -> bytearray:
    """Return ``size`` bytes of another process's memory. Raises Gone if they can't be read."""
    data = bytearray(size)
    if size:
        buffer = (ctypes.c_char * size).from_buffer(data)
        local, remote = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
        done = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if done != size:
            raise Gone(f"memory of process {pid} could not be read: {os.strerror(ctypes.get_errno())}")
    return data


def write_memory(pid: int, address: int, data: bytes) -> None:
    """Write ``data`` to another process's memory. Raises Gone if that is not possible."""
    buffer = ctypes.create_string_buffer(data, len(data))
    local, remote = _Vector(ctypes.addressof(buffer), len(data)), _Vector(address, len(data))
    if _libc.process_vm_writev(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != len(data):
        raise Gone(f"memory of process {pid} could not be written: {os.strerror(ctypes.get_errno())}")


def stop(pid: int) -> None:
    """Send SIGSTOP. :func:`.watch.wait_stopped` waits until it takes effect. Raises Gone."""
    _signal(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Continue a stopped process. Raises Gone."""
    _signal(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """Kill a process. A process that has already ended is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """Kill all processes of the group that ``pid`` leads. A group that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise Gone(f"process {pid} ended") from error


def _state(path: str) -> str:
    return _fields(path)[:1].decode()


def _fields(path: str) -> bytes:
    """Return the fields of a ``stat`` file after the name: a state and numbers. Raises Gone."""
    try:
        data = _read(path)
    except OSError as error:
        raise Gone(f"{path}: ended") from error
    return data[data.rindex(b")") + 2 :]


def _read(path: str) -> bytes:
    """Return the contents of a short file of /proc.

    It is several times as fast as Path.read_bytes, which matters because it runs at each fork.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _MAX_FILE_BYTES)
    finally:
        os.close(file)


def _states(pid: int) -> list[str]:
    """Return the states of all threads, since the first may end before the others. It is empty if all are gone."""
    states: list[str] = []
    with contextlib.suppress(Gone):
        for thread in threads(pid):
            with contextlib.suppress(Gone):
                states.append(_state(f"/proc/{pid}/task/{thread}/stat"))
    return states


def stopped(pid: int) -> bool:
    """Return True if a process uses no time: each of its threads is stopped, or has ended."""
    return all(state in "TZX" for state in _states(pid))


def alive(pid: int) -> bool:
    """Return True if the process runs or could run. A zombie, which has ended and waits for its parent, does not."""
    return any(state not in "ZX" for state in _states(pid))


def parent(pid: int) -> int:
    """Return the parent's process id. Raises Gone."""
    return int(_fields(f"/proc/{pid}/stat").split()[1])


def parent_if_any(pid: int) -> int:
    """Return the parent of ``pid``, or 0 if the process is gone."""
    try:
        return parent(pid)
    except Gone:
        return 0


def inner(pid: int) -> int:
    """Return the process's id in its own pid namespace. Raises Gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    match = _INNER.search(status)
    return int(match.group(1)) if match is not None else pid


def cpu_clock(pid: int) -> int:
    """Return the id of another process's CPU-time clock, all threads together.

    Source: Linux, ``include/linux/posix-timers.h``: ``~pid << 3 | CPUCLOCK_SCHED``.
    """
    return (~pid << 3) | 2


def cpu_seconds(clock: int) -> float:
    """Return the CPU seconds used so far by the process of a :func:`cpu_clock`. Raises Gone."""
    try:
        return time.clock_gettime(clock)
    except OSError as error:
        raise Gone("process ended") from error


def used_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of all these processes together. One that has ended is left out."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(Gone):
            total += cpu_seconds(cpu_clock(pid))
    return total


def threads(pid: int) -> list[int]:
    """Return the ids of a process's threads, ``pid`` itself among them. Raises Gone."""
    try:
        with os.scandir(f"/proc/{pid}/task") as entries:
            return [int(thread.name) for thread in entries]
    except OSError as error:
        raise Gone(f"process {pid} ended") from error


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below ``pid``, in no special order."""
    pids: list[int] = []
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        pids += children
        todo += children
    return pids


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    with contextlib.suppress(Gone):  # the process may end meanwhile
        for thread in threads(pid):
            with contextlib.suppress(OSError):  # and so may a thread
                pids += [int(child) for child in _read(f"/proc/{pid}/task/{thread}/children").split()]
    return pids


def name(pid: int) -> str:
    """Return a process's short name, or "?" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def held_bytes(pids: Collection[int], most: int) -> int:
    """Return the bytes of memory that processes hold together. A page that several of them share counts once.

    A sum that counts it for each of them costs less. So that sum is returned instead if it is at most ``most`` bytes.
    """
    resident = sum(_bytes(pid, "statm", _RESIDENT) * PAGE for pid in pids)
    return resident if resident <= most else sum(_bytes(pid, "smaps_rollup", _SHARE) << 10 for pid in pids)


def _bytes(pid: int, file: str, number: re.Pattern[bytes]) -> int:
    """Return a number in a file of a process, 0 if it has ended."""
    try:
        match = number.search(_read(f"/proc/{pid}/{file}"))
    except OSError:
        return 0
    return 0 if match is None else int(match[1])


def own_pages(pid: int, address: int, size: int) -> list[range] | None:
    """Return the process's own pages in the ``size`` bytes (at least one) from ``address`` on.

    They are ranges of bytes, counted from ``address``. Return None if the kernel does not tell.
    """
    first, last = address // PAGE, (address + size - 1) // PAGE
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), _ENTRY_BYTES * (last - first + 1), _ENTRY_BYTES * first)
    except OSError:
        return None
    flags = np.frombuffer(data, np.uint64)
    if len(flags) <= last - first:
        return None
    private = (flags & _SWAPPED != 0) | ((flags & _PRESENT != 0) & (flags & _SHARED == 0))
    begin, edges = first * PAGE - address, np.flatnonzero(np.diff(private, prepend=False, append=False))
    ends = (begin + edges * PAGE).clip(0, size).reshape(-1, 2).tolist()
    return [range(start, end) for start, end in ends]


@dataclass(frozen=True)
class Code:
    """An executable mapping: addresses, and the file by device and inode (0 if there is none) and by path."""

    start: int
    end: int
    device: int
    inode: int
    path: str

    @property
    def installed(self) -> bool:
        """True if the judge finds the mapped file at the same path."""
        try:
            status = Path(self.path).stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    @property
    def of_kernels_library(self) -> bool:
        """True if the mapped file is a library of mathematics or of OpenMP."""
        return _KERNELS_LIBRARIES.fullmatch(self.path) is not None

    def holds(self, address: int) -> bool:
        """Return True if the address is in it."""
        return self.start <= address < self.end


def mapped_code(pid: int) -> frozenset[Code]:
    """Return the executable mappings of a process. Raises Gone.

    Source for the lines: proc(5), ``/proc/pid/maps``.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    return frozenset(_code(*line.split(None, 5)) for line in lines if "x" in line.split(None, 2)[1])


def _code(addresses: str, _access: str, _offset: str, device: str, inode: str, path: str = "") -> Code:
    start, end = (int(address, 16) for address in addresses.split("-"))
    major, minor = (int(number, 16) for number in device.split(":"))
    return Code(start, end, os.makedev(major, minor), int(inode), path)


def added_code(pid: int, ancestor: int) -> frozenset[Code]:
    """Return a process's mapped code, without unchanged code that its ancestor has too or that is of installed files.

    Compiled kernels are left, and what libraries generate. If the process has written to a page of a file, the page
    is its own (:func:`own_pages`), whatever access the mapping allows now. Raises Gone.
    """
    before = mapped_code(ancestor)
    return frozenset(
        code
        for code in mapped_code(pid)
        if own_pages(pid, code.start, code.end - code.start) or not (code in before or code.installed)
    )
