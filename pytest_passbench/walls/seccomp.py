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

from pytest_passbench.walls import jit_code
from pytest_passbench.walls.harden import libc, prctl
from pytest_passbench.walls.syscalls import OF_ITSELF, SIGNALS, SYSCALL_TABLES, SyscallTable

ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
DENY, ABSENT = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
LOAD, AND, JUMP_EQUAL, JUMP_FROM, JUMP_SET, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, _ARCHITECTURE = 0, 4  # offsets in the kernel's ``seccomp_data``
#: Placeholder for the number of the process that installs a filter. No process has this number.
OWN_NUMBER = 0xFFFFFFFF
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_X32 = 0x40000000

_PR_SET_PDEATHSIG = 1
_CLONE_THREAD, _EXIT_SIGNAL = 0x00010000, 0xFF
#: Flags of clone for a new namespace of any kind, and for a child of the caller's parent.
_CLONE_APART = 0x7E020000 | 0x00008000
#: Flags of clone in glibc's ``pthread_create``: memory, files, signals, thread group, locks, and no exit signal.
_PTHREAD = 0x003D0F00
_PROT_EXEC, _MAP_ANONYMOUS = 4, 0x20
_AF_UNIX, _SOCK_SEQPACKET, _SOCKET_TYPE = 1, 5, 0xF  # the type's other bits are flags
REFUSED = "the kernel refuses a filter of system calls (seccomp)"
_SIGABRT, _SIGKILL, _SIGCHLD, _SIGCONT, _TIOCSCTTY = 6, 9, 17, 18, 0x540E
#: Commands of fcntl: F_SETSIG chooses a signal, which the others make the kernel send when a file or folder is used.
_F_SETSIG, _F_SETLEASE, _F_NOTIFY, _F_SETDELEG = 10, 1024, 1026, 1040


def works() -> bool:
    """Return False if the kernel refuses the filter of :func:`untrusted`. A fork of this process tries it."""
    child = os.fork()
    if child == 0:
        try:
            untrusted()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def untrusted(network: bool = True, driver: bool = False) -> None:
    """Deny tracing, mounts, io_uring, and all ways in which a stopped process could be continued from inside.

    Denied too are changes of another process's limits, cores and priority, and whatever outlives its processes.

    ``network=False`` denies sockets too, except socket pairs. It is for sandboxes without a network namespace. With
    ``driver``, Unix sockets of type SOCK_SEQPACKET are allowed, since CUDA's driver binds one. Nothing is denied on
    a machine without a table of system calls. The run's header says so. Raises RuntimeError if the kernel does not
    take the filter.
    """
    machine = SYSCALL_TABLES.get(platform.machine())
    if machine is None:
        return
    calls = machine.calls
    lines = answer(ABSENT, [calls["clone3"]])  # its flags cannot be seen; without it libc uses clone
    lines += answer(DENY, [calls[name] for name in machine.denied])
    if not network:
        lines += _packets(calls["socket"]) if driver else answer(DENY, [calls["socket"]])
    for name in OF_ITSELF:
        lines += unless(calls[name], 0, [op(JUMP_EQUAL, 1, 0, 0)])
    for name, argument in SIGNALS:
        lines += unless(calls[name], argument, [op(JUMP_EQUAL, 0, 1, _SIGCONT)])
    for command in (_F_SETSIG, _F_SETLEASE, _F_NOTIFY, _F_SETDELEG):
        lines += unless(calls["fcntl"], 1, [op(JUMP_EQUAL, 0, 1, command)])
    lines += unless(calls["ioctl"], 1, [op(JUMP_EQUAL, 0, 1, _TIOCSCTTY)])
    lines += _children(calls["clone"])
    lines += _parents_death(calls["prctl"])
    Filter(machine, [*lines, op(RETURN, 0, 0, ALLOW)]).install()


def measured(driver: bool = False) -> MeasuredFilters | None:
    """Return the filters of a measured process, or None on a machine without a table of system calls.

    With ``driver`` only processes are denied, because a device's driver may open files and start threads at any time.
    """
    machine = SYSCALL_TABLES.get(platform.machine())
    if machine is None:
        return None
    if driver:
        return MeasuredFilters(_no_processes(machine))
    with_jit = _computing(machine, threads=True, jit=True)
    return MeasuredFilters(_computing(machine), _computing(machine, threads=True), with_jit)


class MeasuredFilters:
    """The filters of a measured process. They are made before the fork, so that the process needs no memory for them.

    A process with one thread gets ``plain``. A process with several gets ``first``, and ``threads`` after
    :meth:`settle`. The first block may compile: oneDNN does so for another number of threads than the template's.
    """

    def __init__(self, plain: Filter, threads: Filter | None = None, first: Filter | None = None) -> None:
        self._plain, self._threads, self._first = plain, threads, first
        self._left: Filter | None = None
        self._maps = -1

    def install(self, threads: int) -> None:
        """Install the filter of this process for good. Raises RuntimeError if the kernel does not take it."""
        first = self._plain if threads == 1 else self._first or self._plain
        if first is not self._plain:
            self._left, self._maps = self._threads, os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        first.install()

    def settle(self) -> None:
        """Make code read-only and deny new executable memory, if that was allowed in the first block.

        Raises RuntimeError if the kernel does not take the filter.
        """
        left, self._left = self._left, None
        if left is not None:
            jit_code.seal(self._maps)
            left.install()


def _computing(machine: SyscallTable, threads: bool = False, jit: bool = False) -> Filter:
    """Return the filter of a process that computes on the CPU with the memory and descriptors that it has.

    With ``threads`` it may start threads, since OpenMP's pools shrink and grow. With ``jit`` it may make memory
    executable, read the list of its memory, and install a further filter. No process may map a file: to map inputs in
    an output's place would copy them at no cost.
    """
    calls = machine.calls
    lines = answer(ALLOW, [calls[name] for name in machine.allowed])
    lines += _anonymous(calls["mmap"], executable=jit)
    if jit:
        lines += answer(ALLOW, [calls[name] for name in ("mprotect", "read", "seccomp")])
    else:
        lines += when(calls["mprotect"], 2, [op(JUMP_SET, 1, 0, _PROT_EXEC)])
    if threads:
        lines += when(calls["clone"], 0, [op(JUMP_EQUAL, 0, 1, _PTHREAD)])
        lines += answer(ABSENT, [calls["clone3"]])  # libc then uses clone, whose flags can be seen
    lines += _abort(calls["tgkill"])
    return Filter(machine, [*lines, op(RETURN, 0, 0, DENY)])


def _anonymous(mmap: int, executable: bool) -> list[bytes]:
    """Allow memory that belongs to no file, and executable memory only if ``executable``."""
    rights = [] if executable else [op(LOAD, 0, 0, argument_at(2)), op(JUMP_SET, 1, 0, _PROT_EXEC)]
    return when(mmap, 3, [op(JUMP_SET, 0, 1 + len(rights), _MAP_ANONYMOUS), *rights])


def _no_processes(machine: SyscallTable) -> Filter:
    """Return a filter against new processes, other programs, and changes of affinity or priority."""
    calls = machine.calls
    lines = answer(ABSENT, [calls["clone3"]])
    lines += answer(DENY, [calls[name] for name in machine.processes])
    lines += unless(calls["clone"], 0, [op(JUMP_SET, 1, 0, _CLONE_THREAD)])
    return Filter(machine, [*lines, op(RETURN, 0, 0, ALLOW)])


def _packets(socket: int) -> list[bytes]:
    """Allow Unix sockets of type SOCK_SEQPACKET, and deny all others."""
    kind = [op(LOAD, 0, 0, argument_at(1)), op(AND, 0, 0, _SOCKET_TYPE), op(JUMP_EQUAL, 0, 1, _SOCK_SEQPACKET)]
    return when(socket, 0, [op(JUMP_EQUAL, 0, 4, _AF_UNIX), *kind])


def _children(clone: int) -> list[bytes]:
    """Deny a child in another namespace, a child of another parent, and one whose exit signal is not SIGCHLD.

    A thread has no exit signal, and is allowed.
    """
    test = [
        op(JUMP_SET, 4, 0, _CLONE_APART),
        op(AND, 0, 0, _EXIT_SIGNAL),
        op(JUMP_EQUAL, 1, 0, 0),
        op(JUMP_EQUAL, 0, 1, _SIGCHLD),
    ]
    return when(clone, 0, test)


def _parents_death(prctl: int) -> list[bytes]:
    """Deny all signals at the parent's death except SIGKILL. Setting no signal is denied too."""
    signal = [op(LOAD, 0, 0, argument_at(1)), op(JUMP_EQUAL, 1, 0, _SIGKILL)]
    return unless(prctl, 0, [op(JUMP_EQUAL, 0, 3, _PR_SET_PDEATHSIG), *signal])


def _abort(tgkill: int) -> list[bytes]:
    """Allow a process to send SIGABRT to itself. :class:`Filter` puts the process's number in."""
    signal = [op(LOAD, 0, 0, argument_at(2)), op(JUMP_EQUAL, 0, 1, _SIGABRT)]
    return when(tgkill, 0, [op(JUMP_EQUAL, 0, 3, OWN_NUMBER), *signal])


def op(code: int, yes: int, no: int, value: int) -> bytes:
    """Return an instruction. A jump skips ``yes`` instructions if its test of ``value`` holds, and else ``no``."""
    return struct.pack("<HBBI", code, yes, no, value)


def argument_at(index: int) -> int:
    """Return the offset of an argument's low half in the kernel's ``seccomp_data`` (little endian)."""
    return 16 + 8 * index


def answer(action: int, numbers: Iterable[int]) -> list[bytes]:
    """Return instructions that answer these calls with ``action``."""
    return [line for number in numbers for line in (op(JUMP_EQUAL, 0, 1, number), op(RETURN, 0, 0, action))]


def when(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Allow call ``number`` if ``test`` of an argument skips no instruction behind it, and deny it otherwise."""
    body = [op(LOAD, 0, 0, argument_at(argument)), *test, op(RETURN, 0, 0, ALLOW), op(RETURN, 0, 0, DENY)]
    return [op(JUMP_EQUAL, 0, len(body), number), *body]


def unless(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Deny call ``number`` if ``test`` of an argument skips no instruction behind it, and else decide nothing."""
    body = [op(LOAD, 0, 0, argument_at(argument)), *test, op(RETURN, 0, 0, DENY), op(LOAD, 0, 0, NUMBER)]
    return [op(JUMP_EQUAL, 0, len(body), number), *body]


class Filter:
    """A filter in the kernel's form. It is made once, and installing it needs no new memory."""

    def __init__(self, machine: SyscallTable, lines: list[bytes]) -> None:
        head = [
            op(LOAD, 0, 0, _ARCHITECTURE),
            op(JUMP_EQUAL, 1, 0, machine.arch),
            op(RETURN, 0, 0, DENY),
            op(LOAD, 0, 0, NUMBER),
            op(JUMP_FROM, 0, 1, _X32),  # x32 on x86-64 has the same calls under other numbers
            op(RETURN, 0, 0, DENY),
        ]
        program = [*head, *lines]
        self._pid_places = [8 * index + 4 for index, line in enumerate(program) if line[4:] == b"\xff\xff\xff\xff"]
        self._number = machine.calls["seccomp"]
        self._program = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
        place = ctypes.addressof(self._program)
        self._header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program), place))

    def install(self) -> None:
        """Install the filter in this process for good. Raises RuntimeError if the kernel does not take it.

        Nothing untrusted may run without it on a machine that has a table of system calls.
        """
        for place in self._pid_places:
            struct.pack_into("<I", self._program, place, os.getpid())
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        arguments = map(ctypes.c_ulong, (_SET_MODE_FILTER, _ALL_THREADS, ctypes.addressof(self._header)))
        if libc.syscall(ctypes.c_long(self._number), *arguments):
            raise RuntimeError(REFUSED)
