"""Programs of classic BPF for seccomp filters: instructions on system calls, and their installation."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from pytest_passbench.walls.syscalls import SyscallTable

ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
DENY, ABSENT = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
LOAD, AND, JUMP_EQUAL, JUMP_FROM, JUMP_SET, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, _ARCHITECTURE = 0, 4  # offsets in the kernel's ``seccomp_data``
#: Placeholder for the number of the process that installs a filter. No process has this number.
OWN_NUMBER = 0xFFFFFFFF
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_X32 = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)  # once, since each new one makes types anew


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
    """Allow call ``number`` if ``test`` of an argument goes on, and deny it if the test skips an instruction."""
    return decide(number, [op(LOAD, 0, 0, argument_at(argument)), *test], ALLOW, DENY)


def unless(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Deny call ``number`` if ``test`` of an argument goes on, and go on behind if the test skips an instruction."""
    body = [
        op(LOAD, 0, 0, argument_at(argument)),
        *test,
        op(RETURN, 0, 0, DENY),
        op(LOAD, 0, 0, NUMBER),
    ]
    return [op(JUMP_EQUAL, 0, len(body), number), *body]


def decide(number: int, body: list[bytes], then: int, otherwise: int) -> list[bytes]:
    """Answer call ``number`` with ``then`` if ``body`` goes on, and with ``otherwise`` if it skips an instruction."""
    body = [*body, op(RETURN, 0, 0, then), op(RETURN, 0, 0, otherwise)]
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

    def install(self) -> bool:
        """Install the filter in this process for good. Return False if the kernel refuses."""
        for place in self._pid_places:
            struct.pack_into("<I", self._program, place, os.getpid())
        zero, pointer = ctypes.c_ulong(0), ctypes.c_ulong(ctypes.addressof(self._header))
        mode, flags = ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
        return int(_libc.syscall(ctypes.c_long(self._number), mode, flags, pointer)) == 0
