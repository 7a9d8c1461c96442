"""Watching and stopping processes of a sandbox from outside: signals, CPU clocks, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from pathlib import Path

_MOMENT = 2e-5  # seconds: a process that sleeps stops within this time
_ROOM = 1 << 16  # bytes
_INNER = re.compile(r"^NSpid:.*?(\d+)$", re.M)


class Gone(Exception):
    """The process ended."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.argtypes = [
    ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
]  # fmt: skip
_libc.process_vm_readv.restype = ctypes.c_ssize_t


def read_memory(pid: int, address: int, size: int) -> bytearray:
    """``size`` bytes of another process's memory. Raises Gone where they can't be had."""
    data = bytearray(size)
    if size:
        buffer = (ctypes.c_char * size).from_buffer(data)
        local, remote = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
        done = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if done != size:
            raise Gone(f"memory of process {pid} could not be read: {os.strerror(ctypes.get_errno())}")
    return data


def stop(pid: int) -> None:
    """Ask for a stop; :func:`wait_stopped` waits until it holds."""
    _signal(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Continue a stopped process."""
    _signal(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """End a process for good; one that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise Gone(f"process {pid} ended") from error


def wait_stopped(pid: int, limit: float = 5.0) -> None:
    """Return once every thread of ``pid`` is stopped. Raises Gone.

    The kernel tells each thread by itself, and one that runs on may still start another.
    """
    deadline, stopped = time.monotonic() + limit, set[int]()
    while (found := set(threads(pid))) != stopped:
        for thread in found - stopped:
            _wait_stopped(f"/proc/{pid}/task/{thread}/stat", deadline, alone=len(found) == 1)
        stopped = found


def _wait_stopped(path: str, deadline: float, alone: bool) -> None:
    """Wait for a thread. One that has ended uses no time either, while others of its process go on."""
    while (state := _state(path)) != "T":
        if state in "ZX" and not alone:
            return
        if state in "ZX" or time.monotonic() > deadline:
            raise Gone(f"{path}: does not stop (state {state})")
        time.sleep(_MOMENT)  # it may have to stop on this very core, where we may go before it


def _state(path: str) -> str:
    try:
        data = _read(path)
    except OSError as error:
        raise Gone(f"{path}: ended") from error
    return chr(data[data.rindex(b")") + 2])


def _read(path: str) -> bytes:
    """Return what a short file of /proc holds now; several times as fast as by a Path, which counts at each fork."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _ROOM)
    finally:
        os.close(file)


def _states(pid: int) -> list[str]:
    """Return the states of all threads; none if the process is gone. The first may have ended before the others."""
    found: list[str] = []
    with contextlib.suppress(Gone):
        for thread in threads(pid):
            with contextlib.suppress(Gone):
                found.append(_state(f"/proc/{pid}/task/{thread}/stat"))
    return found


def stopped(pid: int) -> bool:
    """Return whether a process uses no time: each of its threads is stopped, or has ended."""
    return all(state in "TZX" for state in _states(pid))


def alive(pid: int) -> bool:
    """Whether the process still runs or could (a dead one that nobody has buried yet does not)."""
    return any(state not in "ZX" for state in _states(pid))


def parent(pid: int) -> int:
    """The parent's process id. Raises Gone."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    return int(data[data.rindex(b")") + 2 :].split()[1])


def parent_if_any(pid: int) -> int:
    """The parent of ``pid``, or 0 where it is gone."""
    try:
        return parent(pid)
    except Gone:
        return 0


def inner(pid: int) -> int:
    """The process's number in its own namespace. Raises Gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    found = _INNER.search(status)
    return int(found.group(1)) if found is not None else pid


def cpu_clock(pid: int) -> int:
    """The id of another process's CPU-time clock, all threads together (Linux: ``~pid << 3 | CPUCLOCK_SCHED``)."""
    return (~pid << 3) | 2


def cpu_seconds(clock: int) -> float:
    """CPU seconds used so far. Raises Gone."""
    try:
        return time.clock_gettime(clock)
    except OSError as error:
        raise Gone("process ended") from error


def threads(pid: int) -> list[int]:
    """A process's threads, itself among them. Raises Gone."""
    try:
        with os.scandir(f"/proc/{pid}/task") as found:
            return [int(thread.name) for thread in found]
    except OSError as error:
        raise Gone(f"process {pid} ended") from error


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, in no special order."""
    found: list[int] = []
    todo = [pid]
    while todo:
        for child in _children(todo.pop()):
            found.append(child)
            todo.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(Gone):  # it may end while we look
        for thread in threads(pid):
            found += _children_of_thread(f"/proc/{pid}/task/{thread}/children")
    return found


def _children_of_thread(path: str) -> list[int]:
    try:
        return [int(child) for child in _read(path).split()]
    except OSError:
        return []


def name(pid: int) -> str:
    """A process's short name, or "?" where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
