"""System calls that the untrusted side does without, as seccomp filters: inherited, and never taken back.

Classic BPF (the kernel's ``Documentation/userspace-api/seccomp_filter.rst``). Two filters: ``untrusted`` from before
a candidate's first line on, so that nothing can outwit the judge's stop signal; ``measured`` adds what only building
needs: new processes and programs.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_DENY, _ABSENT = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CLONE_THREAD, _X32 = 0x00010000, 0x40000000
_SIGCONT, _F_SETSIG, _PR_SET_PDEATHSIG = 18, 10, 1
_libc = ctypes.CDLL(None, use_errno=True)  # once: each new one would make types anew, in every fork


@dataclass(frozen=True)
class _Machine:
    """Numbers of system calls. ``signals``: number of the call and which of its arguments is the signal."""

    arch: int
    seccomp: int
    clone: int
    clone3: int
    fcntl: int
    prctl: int
    socket: int
    signals: tuple[tuple[int, int], ...]
    always: tuple[int, ...]
    measured: tuple[int, ...]


_X86_64 = _Machine(
    arch=0xC000003E, seccomp=317, clone=56, clone3=435, fcntl=72, prctl=157, socket=41,
    signals=((62, 1), (200, 1), (234, 2), (129, 1), (297, 2)),  # kill, tkill, tgkill, rt_(tg)sigqueueinfo
    always=(
        101, 310, 311, 312,  # ptrace, process_vm_readv, process_vm_writev, kcmp
        222, 244,  # timer_create, mq_notify: signals (SIGCONT) from the kernel to a stopped process
        425, 426, 427, 321, 298, 323,  # io_uring, bpf, perf, userfaultfd
        165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 442,  # mount family, chroot, unshare, setns
        248, 249, 250, 438, 434, 424,  # keys, pidfd
    ),
    # fork, vfork, execve, execveat; affinity, priority, scheduler, its parameters and attributes, ioprio
    measured=(57, 58, 59, 322, 203, 141, 144, 142, 314, 251),
)  # fmt: skip
_AARCH64 = _Machine(
    arch=0xC00000B7, seccomp=277, clone=220, clone3=435, fcntl=25, prctl=167, socket=198,
    signals=((129, 1), (130, 1), (131, 2), (138, 1), (240, 2)),
    always=(
        117, 270, 271, 272, 107, 184, 425, 426, 427, 280, 241, 282,
        40, 39, 41, 51, 97, 268, 428, 429, 430, 431, 432, 442, 217, 218, 219, 438, 434, 424,
    ),
    measured=(221, 281, 122, 140, 118, 119, 274, 30),
)  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def untrusted(network: bool = True) -> bool:
    """Deny tracing, mounts, io_uring and every way to be continued by anyone but the judge.

    ``network=False`` denies sockets too (socket pairs stay), for where no network namespace does. Returns False on
    a machine whose system calls are not tabulated here, or where the kernel refuses filters.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    sockets = () if network else (machine.socket,)
    lines = _denied((*machine.always, *sockets))
    for number, argument in machine.signals:
        lines += _when(number, [(argument, _SIGCONT)])
    lines += _when(machine.fcntl, [(1, _F_SETSIG)])
    lines += _when(machine.prctl, [(0, _PR_SET_PDEATHSIG), (1, _SIGCONT)])
    return Filter(machine, lines).install()


def measured() -> Filter | None:
    """Denies new processes, exec and changes of affinity or priority. Threads stay: OpenMP pools are honest.

    None on a machine whose system calls are not tabulated here.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    # clone3 hides its flags behind a pointer; libc falls back to clone where it is not there
    lines = [_op(_JUMP_EQUAL, 0, 1, machine.clone3), _op(_RETURN, 0, 0, _ABSENT)]
    lines += _denied(machine.measured)
    lines += [
        _op(_JUMP_EQUAL, 0, 3, machine.clone),
        _op(_LOAD, 0, 0, _argument(0)),  # clone's flags
        _op(_JUMP_SET, 1, 0, _CLONE_THREAD),
        _op(_RETURN, 0, 0, _DENY),
    ]
    return Filter(machine, lines)


def _denied(numbers: Iterable[int]) -> list[bytes]:
    return [line for number in numbers for line in (_op(_JUMP_EQUAL, 0, 1, number), _op(_RETURN, 0, 0, _DENY))]


def _when(number: int, values: list[tuple[int, int]]) -> list[bytes]:
    """Deny call ``number`` where every (argument, value) holds; leaves the call's number loaded."""
    tests: list[bytes] = []
    for position, (argument, value) in enumerate(values):
        left = 2 * (len(values) - position - 1) + 1  # lines from behind this test up to the reload
        tests += [_op(_LOAD, 0, 0, _argument(argument)), _op(_JUMP_EQUAL, 0, left, value)]
    tests += [_op(_RETURN, 0, 0, _DENY), _op(_LOAD, 0, 0, 0)]
    return [_op(_JUMP_EQUAL, 0, len(tests), number), *tests]


def _argument(index: int) -> int:
    """Where the low half of an argument lies in the kernel's ``seccomp_data`` (little endian)."""
    return 16 + 8 * index


def _op(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


class Filter:
    """A filter as the kernel wants it, made once; whoever installs it needs no memory of its own for it."""

    def __init__(self, machine: _Machine, lines: list[bytes]) -> None:
        head = [
            _op(_LOAD, 0, 0, 4),  # the architecture
            _op(_JUMP_EQUAL, 1, 0, machine.arch),
            _op(_RETURN, 0, 0, _DENY),
            _op(_LOAD, 0, 0, 0),  # the system call's number
            _op(_JUMP_FROM, 0, 1, _X32),  # the x32 interface of x86-64: the same calls under other numbers
            _op(_RETURN, 0, 0, _DENY),
        ]
        program = b"".join([*head, *lines, _op(_RETURN, 0, 0, _ALLOW)])
        self._number = machine.seccomp
        self._program = ctypes.create_string_buffer(program, len(program))
        place = ctypes.addressof(self._program)
        self._header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program) // 8, place))

    def install(self) -> bool:
        """Put this process under it, for good. False where the kernel refuses."""
        zero, pointer = ctypes.c_ulong(0), ctypes.c_ulong(ctypes.addressof(self._header))
        mode, flags = ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
        return int(_libc.syscall(ctypes.c_long(self._number), mode, flags, pointer)) == 0
