"""Seccomp filters of the system calls that the untrusted side may make. They are inherited and cannot be removed.

They are programs of classic BPF (the kernel's ``Documentation/userspace-api/seccomp_filter.rst``). ``untrusted``
lists denied calls. It is installed before a candidate's first line runs, so that no process can continue after the
judge's stop signal. ``measured`` lists the calls that a measured process may make: those that computing needs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

from pytest_passbench.walls import code
from pytest_passbench.walls.syscalls import MACHINES, Machine

_PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 38, 1
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_DENY, _ABSENT = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_LOAD, _AND, _JUMP_EQUAL, _JUMP_FROM, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in the kernel's ``seccomp_data``
_X32 = 0x40000000
_CLONE_THREAD, _EXIT_SIGNAL = 0x00010000, 0xFF
#: Flags of clone for a new namespace of any kind, and for a child of the caller's parent.
_CLONE_APART = 0x7E020000 | 0x00008000
#: Flags of clone in glibc's ``pthread_create``: memory, files, signals, thread group, locks, and no exit signal.
_PTHREAD = 0x003D0F00
_PROT_EXEC = 4
_SIGABRT, _SIGKILL, _SIGCHLD, _SIGCONT, _F_SETSIG, _TIOCSCTTY = 6, 9, 17, 18, 10, 0x540E
_libc = ctypes.CDLL(None, use_errno=True)  # once, since each new one makes types anew


def untrusted(network: bool = True) -> bool:
    """Deny tracing, mounts, io_uring, and all ways in which a stopped process could be continued from inside.

    ``network=False`` denies sockets too, except socket pairs. It is for sandboxes without a network namespace. Return
    False if the machine's system calls are not tabulated, or if the kernel refuses the filter.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    calls = machine.calls
    sockets = () if network else (calls["socket"],)
    lines = _answer(_ABSENT, [calls["clone3"]])  # its flags cannot be seen; without it libc uses clone
    lines += _answer(_DENY, (*(calls[name] for name in machine.denied), *sockets))
    for name, argument in machine.signals:
        lines += _unless(calls[name], argument, [_op(_JUMP_EQUAL, 0, 1, _SIGCONT)])
    lines += _unless(calls["fcntl"], 1, [_op(_JUMP_EQUAL, 0, 1, _F_SETSIG)])
    lines += _unless(calls["ioctl"], 1, [_op(_JUMP_EQUAL, 0, 1, _TIOCSCTTY)])
    lines += _children(calls["clone"])
    lines += _parents_death(calls["prctl"])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _ALLOW)]).install()


def measured(driver: bool = False) -> Measured | None:
    """Return the filters of a measured process, or None if the machine's system calls are not tabulated.

    With ``driver`` only processes are denied, because a device's driver may open files and start threads at any time.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return None
    if driver:
        return Measured(_no_processes(machine))
    with_jit = _computing(machine, threads=True, jit=True)
    return Measured(_computing(machine), _computing(machine, threads=True), with_jit)


class Measured:
    """The filters of a measured process. They are made before the fork, so that it needs no own memory for them.

    A process with one thread gets ``plain``. A process with several gets ``first``, and ``threads`` after
    :meth:`settle`. The first block may compile: oneDNN does so for another number of threads than the template's.
    """

    def __init__(self, plain: Filter, threads: Filter | None = None, first: Filter | None = None) -> None:
        self._plain, self._threads, self._first = plain, threads, first
        self._left: Filter | None = None
        self._maps = -1

    def install(self, threads: int) -> bool:
        """Install the filter of this process for good. Return False if the kernel refuses."""
        if threads == 1 or self._first is None:
            return self._plain.install()
        self._left, self._maps = self._threads, os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        return self._first.install()

    def settle(self) -> None:
        """Make code read-only and deny new executable memory, if that was allowed in the first block.

        Raises OSError if the kernel refuses the filter.
        """
        left, self._left = self._left, None
        if left is None:
            return
        code.seal(self._maps)
        if not left.install():
            raise OSError("the kernel refuses the filter of a measured process")


def _computing(machine: Machine, threads: bool = False, jit: bool = False) -> Filter:
    """Return the filter of a process that computes on the CPU with the memory and descriptors that it has.

    With ``threads`` it may start threads, since OpenMP's pools shrink and grow. With ``jit`` it may make memory
    executable and install a further filter.
    """
    calls = machine.calls
    lines = _answer(_ALLOW, [calls[name] for name in machine.allowed])
    if jit:
        lines += _answer(_ALLOW, [calls[name] for name in ("mmap", "mprotect", "seccomp")])
    else:
        for name in ("mmap", "mprotect"):
            lines += _when(calls[name], 2, [_op(_JUMP_SET, 1, 0, _PROT_EXEC)])
    if threads:
        lines += _when(calls["clone"], 0, [_op(_JUMP_EQUAL, 0, 1, _PTHREAD)])
        lines += _answer(_ABSENT, [calls["clone3"]])  # libc then uses clone, whose flags can be seen
    lines += _abort(calls["tgkill"])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _DENY)])


def _no_processes(machine: Machine) -> Filter:
    """Return a filter against new processes, other programs, and changes of affinity or priority."""
    calls = machine.calls
    lines = _answer(_ABSENT, [calls["clone3"]])
    lines += _answer(_DENY, [calls[name] for name in machine.processes])
    lines += _unless(calls["clone"], 0, [_op(_JUMP_SET, 1, 0, _CLONE_THREAD)])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _ALLOW)])


def _answer(action: int, numbers: Iterable[int]) -> list[bytes]:
    """Return instructions that answer these calls with ``action``."""
    return [line for number in numbers for line in (_op(_JUMP_EQUAL, 0, 1, number), _op(_RETURN, 0, 0, action))]


def _when(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Allow call ``number`` if ``test`` of an argument goes on, and deny it if the test skips an instruction."""
    return _decided(number, [_op(_LOAD, 0, 0, _argument(argument)), *test], _ALLOW, _DENY)


def _unless(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Deny call ``number`` if ``test`` of an argument goes on, and go on behind if the test skips an instruction."""
    body = [_op(_LOAD, 0, 0, _argument(argument)), *test, _op(_RETURN, 0, 0, _DENY), _op(_LOAD, 0, 0, _NUMBER)]
    return [_op(_JUMP_EQUAL, 0, len(body), number), *body]


def _decided(number: int, body: list[bytes], then: int, otherwise: int) -> list[bytes]:
    body = [*body, _op(_RETURN, 0, 0, then), _op(_RETURN, 0, 0, otherwise)]
    return [_op(_JUMP_EQUAL, 0, len(body), number), *body]


def _children(clone: int) -> list[bytes]:
    """Deny a child in another namespace, a child of another parent, and one whose exit signal is not SIGCHLD.

    A thread has no exit signal, and is allowed.
    """
    test = [
        _op(_JUMP_SET, 4, 0, _CLONE_APART),
        _op(_AND, 0, 0, _EXIT_SIGNAL),
        _op(_JUMP_EQUAL, 1, 0, 0),
        _op(_JUMP_EQUAL, 0, 1, _SIGCHLD),
    ]
    return _when(clone, 0, test)


def _parents_death(prctl: int) -> list[bytes]:
    """Deny all signals at the parent's death except SIGKILL. Setting no signal is denied too."""
    killed = [_op(_LOAD, 0, 0, _argument(1)), _op(_JUMP_EQUAL, 1, 0, _SIGKILL), _op(_RETURN, 0, 0, _DENY)]
    body = [
        _op(_LOAD, 0, 0, _argument(0)),
        _op(_JUMP_EQUAL, 0, len(killed), _PR_SET_PDEATHSIG),
        *killed,
        _op(_LOAD, 0, 0, _NUMBER),
    ]
    return [_op(_JUMP_EQUAL, 0, len(body), prctl), *body]


def _abort(tgkill: int) -> list[bytes]:
    """Allow a process to send SIGABRT to itself. :class:`Filter` puts the process's number in."""
    itself = [_op(_LOAD, 0, 0, _argument(0)), _op(_JUMP_EQUAL, 0, 3, _OWN_NUMBER)]
    return _decided(
        tgkill, [*itself, _op(_LOAD, 0, 0, _argument(2)), _op(_JUMP_EQUAL, 0, 1, _SIGABRT)], _ALLOW, _DENY
    )


def _argument(index: int) -> int:
    """Return the offset of an argument's low half in the kernel's ``seccomp_data`` (little endian)."""
    return 16 + 8 * index


def _op(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


#: Placeholder for the number of the process that installs a filter. No process has this number.
_OWN_NUMBER = 0xFFFFFFFF


class Filter:
    """A filter in the kernel's form. It is made once, and installing it needs no new memory."""

    def __init__(self, machine: Machine, lines: list[bytes]) -> None:
        head = [
            _op(_LOAD, 0, 0, _ARCHITECTURE),
            _op(_JUMP_EQUAL, 1, 0, machine.arch),
            _op(_RETURN, 0, 0, _DENY),
            _op(_LOAD, 0, 0, _NUMBER),
            _op(_JUMP_FROM, 0, 1, _X32),  # x32 on x86-64 has the same calls under other numbers
            _op(_RETURN, 0, 0, _DENY),
        ]
        program = [*head, *lines]
        self._own = [8 * index + 4 for index, line in enumerate(program) if line[4:] == b"\xff\xff\xff\xff"]
        self._number = machine.calls["seccomp"]
        self._program = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
        place = ctypes.addressof(self._program)
        self._header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program), place))

    def install(self) -> bool:
        """Install the filter in this process for good. Return False if the kernel refuses."""
        for place in self._own:
            struct.pack_into("<I", self._program, place, os.getpid())
        zero, pointer = ctypes.c_ulong(0), ctypes.c_ulong(ctypes.addressof(self._header))
        mode, flags = ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
        return int(_libc.syscall(ctypes.c_long(self._number), mode, flags, pointer)) == 0
