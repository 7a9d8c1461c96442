"""System calls that the untrusted side may make, as seccomp filters: inherited, and never taken back.

Classic BPF (the kernel's ``Documentation/userspace-api/seccomp_filter.rst``). There are two filters. ``untrusted`` is
a list of what is denied, from before a candidate's first line on: nothing can outwit the judge's stop signal.
``measured`` is a list of what is allowed to a measured process: what computing needs, and nothing else.
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
_NUMBER, _ARCHITECTURE = 0, 4  # where they lie in the kernel's ``seccomp_data``
_X32 = 0x40000000
_CLONE_THREAD, _EXIT_SIGNAL = 0x00010000, 0xFF
#: Flags of clone: a new namespace of any kind, or a child of one's parent.
_CLONE_APART = 0x7E020000 | 0x00008000
#: What glibc's ``pthread_create`` asks of clone: memory, files, signals, thread group, locks, and no exit signal.
_PTHREAD = 0x003D0F00
_PROT_EXEC = 4
_SIGABRT, _SIGKILL, _SIGCHLD, _SIGCONT, _F_SETSIG, _TIOCSCTTY = 6, 9, 17, 18, 10, 0x540E
_libc = ctypes.CDLL(None, use_errno=True)  # once: each new one would make types anew, in every fork


def untrusted(network: bool = True) -> bool:
    """Deny tracing, mounts, io_uring and every way to be continued by anyone but the judge.

    ``network=False`` denies sockets too (socket pairs stay), for where no network namespace does. Returns False on
    a machine whose system calls are not tabulated here, or where the kernel refuses filters.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return False
    calls = machine.calls
    sockets = () if network else (calls["socket"],)
    lines = _answer(_ABSENT, [calls["clone3"]])  # it hides its flags; libc falls back to clone where it is not there
    lines += _answer(_DENY, (*(calls[name] for name in machine.denied), *sockets))
    for name, argument in machine.signals:
        lines += _unless(calls[name], argument, [_op(_JUMP_EQUAL, 0, 1, _SIGCONT)])
    lines += _unless(calls["fcntl"], 1, [_op(_JUMP_EQUAL, 0, 1, _F_SETSIG)])
    lines += _unless(calls["ioctl"], 1, [_op(_JUMP_EQUAL, 0, 1, _TIOCSCTTY)])
    lines += _children(calls["clone"])
    lines += _parents_death(calls["prctl"])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _ALLOW)]).install()


def measured(driver: bool = False) -> Measured | None:
    """The filters of a measured process. None on a machine whose system calls are not tabulated here.

    With ``driver`` only processes are denied: a device's driver opens files and starts threads when it likes.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return None
    if driver:
        return Measured(_no_processes(machine))
    with_jit = _computing(machine, threads=True, jit=True)
    return Measured(_computing(machine), _computing(machine, threads=True), with_jit)


class Measured:
    """The filters of a measured process, made before it is forked: it needs no memory of its own for them.

    With one thread it is ``plain`` from the start. With several it is ``first`` until :meth:`settle` and ``threads``
    from then on: oneDNN compiles anew for another number of threads than the template's one.
    """

    def __init__(self, plain: Filter, threads: Filter | None = None, first: Filter | None = None) -> None:
        self._plain, self._threads, self._first = plain, threads, first
        self._left: Filter | None = None
        self._maps = -1

    def install(self, threads: int) -> bool:
        """Put this process under its filter, for good. False where the kernel refuses."""
        if threads == 1 or self._first is None:
            return self._plain.install()
        self._left, self._maps = self._threads, os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        return self._first.install()

    def settle(self) -> None:
        """After the first block: deny executable memory, where it was not denied from the start, and keep what there
        is from being written to. Raises OSError."""
        left, self._left = self._left, None
        if left is None:
            return
        code.seal(self._maps)
        if not left.install():
            raise OSError("the kernel refuses the filter of a measured process")


def _computing(machine: Machine, threads: bool = False, jit: bool = False) -> Filter:
    """What a process does that computes on the CPU with memory and descriptors that it has.

    With ``threads`` it may start some: OpenMP's pools shrink and grow with what a kernel asks for. With ``jit`` it
    may make memory executable and put itself under a further filter.
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
        lines += _answer(_ABSENT, [calls["clone3"]])  # libc then takes clone, whose flags can be seen
    lines += _abort(calls["tgkill"])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _DENY)])


def _no_processes(machine: Machine) -> Filter:
    """No processes, no programs, no changes of affinity or priority."""
    calls = machine.calls
    lines = _answer(_ABSENT, [calls["clone3"]])
    lines += _answer(_DENY, [calls[name] for name in machine.processes])
    lines += _unless(calls["clone"], 0, [_op(_JUMP_SET, 1, 0, _CLONE_THREAD)])
    return Filter(machine, [*lines, _op(_RETURN, 0, 0, _ALLOW)])


def _answer(action: int, numbers: Iterable[int]) -> list[bytes]:
    return [line for number in numbers for line in (_op(_JUMP_EQUAL, 0, 1, number), _op(_RETURN, 0, 0, action))]


def _when(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Allow call ``number`` where ``test`` of an argument goes on, deny it where that skips one line."""
    return _decided(number, [_op(_LOAD, 0, 0, _argument(argument)), *test], _ALLOW, _DENY)


def _unless(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Deny call ``number`` where ``test`` of an argument goes on; look further where it skips one line."""
    body = [_op(_LOAD, 0, 0, _argument(argument)), *test, _op(_RETURN, 0, 0, _DENY), _op(_LOAD, 0, 0, _NUMBER)]
    return [_op(_JUMP_EQUAL, 0, len(body), number), *body]


def _decided(number: int, body: list[bytes], then: int, otherwise: int) -> list[bytes]:
    body = [*body, _op(_RETURN, 0, 0, then), _op(_RETURN, 0, 0, otherwise)]
    return [_op(_JUMP_EQUAL, 0, len(body), number), *body]


def _children(clone: int) -> list[bytes]:
    """Deny a child in a namespace of its own, one of another parent, and one that sends anything but SIGCHLD when it
    ends; a thread sends nothing."""
    test = [
        _op(_JUMP_SET, 4, 0, _CLONE_APART),
        _op(_AND, 0, 0, _EXIT_SIGNAL),
        _op(_JUMP_EQUAL, 1, 0, 0),
        _op(_JUMP_EQUAL, 0, 1, _SIGCHLD),
    ]
    return _when(clone, 0, test)


def _parents_death(prctl: int) -> list[bytes]:
    """Deny any other signal at the parent's death than SIGKILL, and none."""
    killed = [_op(_LOAD, 0, 0, _argument(1)), _op(_JUMP_EQUAL, 1, 0, _SIGKILL), _op(_RETURN, 0, 0, _DENY)]
    body = [
        _op(_LOAD, 0, 0, _argument(0)),
        _op(_JUMP_EQUAL, 0, len(killed), _PR_SET_PDEATHSIG),
        *killed,
        _op(_LOAD, 0, 0, _NUMBER),
    ]
    return [_op(_JUMP_EQUAL, 0, len(body), prctl), *body]


def _abort(tgkill: int) -> list[bytes]:
    """Allow a process to abort: SIGABRT to itself (:class:`Filter` puts its number in)."""
    itself = [_op(_LOAD, 0, 0, _argument(0)), _op(_JUMP_EQUAL, 0, 3, _OWN_NUMBER)]
    return _decided(
        tgkill, [*itself, _op(_LOAD, 0, 0, _argument(2)), _op(_JUMP_EQUAL, 0, 1, _SIGABRT)], _ALLOW, _DENY
    )


def _argument(index: int) -> int:
    """Where the low half of an argument lies in the kernel's ``seccomp_data`` (little endian)."""
    return 16 + 8 * index


def _op(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


#: Stands for the number of the process that installs a filter; no process has it.
_OWN_NUMBER = 0xFFFFFFFF


class Filter:
    """A filter as the kernel wants it, made once; whoever installs it needs no memory of its own for it."""

    def __init__(self, machine: Machine, lines: list[bytes]) -> None:
        head = [
            _op(_LOAD, 0, 0, _ARCHITECTURE),
            _op(_JUMP_EQUAL, 1, 0, machine.arch),
            _op(_RETURN, 0, 0, _DENY),
            _op(_LOAD, 0, 0, _NUMBER),
            _op(_JUMP_FROM, 0, 1, _X32),  # the x32 interface of x86-64: the same calls under other numbers
            _op(_RETURN, 0, 0, _DENY),
        ]
        program = [*head, *lines]
        self._own = [8 * index + 4 for index, line in enumerate(program) if line[4:] == b"\xff\xff\xff\xff"]
        self._number = machine.calls["seccomp"]
        self._program = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
        place = ctypes.addressof(self._program)
        self._header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program), place))

    def install(self) -> bool:
        """Put this process under it, for good. False where the kernel refuses."""
        for place in self._own:
            struct.pack_into("<I", self._program, place, os.getpid())
        zero, pointer = ctypes.c_ulong(0), ctypes.c_ulong(ctypes.addressof(self._header))
        mode, flags = ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
        return int(_libc.syscall(ctypes.c_long(self._number), mode, flags, pointer)) == 0
