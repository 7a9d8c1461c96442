"""What a process of the untrusted side gives up, by itself, before it runs a candidate's code.

The sandbox (namespaces) is the judge's doing; this is the rest: resource limits, no core dumps, and for measured
runners a seccomp filter (classic BPF, kernel's ``Documentation/userspace-api/seccomp_filter.rst``), which is
inherited and cannot be taken back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_PDEATHSIG = 4, 38, 22, 1
_SECCOMP_MODE_FILTER = 2
_PERSONALITY_QUERY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_CLONE_THREAD = 0x00010000

# Numbers of the system calls that a measured runner has no business with, for the two supported machines.
_X86_64 = {
    "arch": 0xC000003E, "clone": 56, "clone3": 435,
    "deny": (
        57, 58, 59, 322,  # fork, vfork, execve, execveat
        101, 310, 311, 312,  # ptrace, process_vm_readv, process_vm_writev, kcmp
        203, 141, 144, 142, 314, 251,  # affinity, priority, scheduler, scheduling parameters and attributes, ioprio
        425, 426, 427,  # io_uring
        165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 442,  # mount family, chroot, unshare, setns
        321, 298, 323, 248, 249, 250, 438, 434,  # bpf, perf, userfaultfd, keys, pidfd
    ),
}  # fmt: skip
_AARCH64 = {
    "arch": 0xC00000B7, "clone": 220, "clone3": 435,
    "deny": (
        221, 281, 117, 270, 271, 272, 122, 140, 118, 119, 274, 30, 425, 426, 427,
        40, 39, 41, 51, 97, 268, 428, 429, 430, 431, 432, 442, 280, 241, 282, 217, 218, 219, 438, 434,
    ),
}  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def _prctl(option: int, value: int, pointer: int = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(number) for number in (value, pointer, 0, 0)]
    return int(libc.prctl(option, *arguments))


def not_dumpable() -> None:
    """Keep this process's memory from others of the same user."""
    _prctl(_PR_SET_DUMPABLE, 0)


def dumpable() -> None:
    """Let the judge (and only what may ptrace us) read this process's memory."""
    _prctl(_PR_SET_DUMPABLE, 1)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def same_layout() -> None:
    """Start this interpreter anew without address randomisation, unless it has none already.

    Where things lie in memory makes a program a few per cent faster or slower, and all forks of a zygote inherit
    its layout. So arms that run the same program must have the same one; between different programs it stays part
    of what is measured.
    """
    libc = ctypes.CDLL(None)
    now = libc.personality(_PERSONALITY_QUERY)
    if now >= 0 and not now & _ADDR_NO_RANDOMIZE and libc.personality(now | _ADDR_NO_RANDOMIZE) >= 0:
        os.execv(sys.executable, sys.orig_argv)


def limit_resources(memory: int, file_bytes: int, processes: int) -> None:
    """Set hard limits: address space and file size in bytes, number of processes of this user."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        _lower(kind, value)


def _lower(kind: int, value: int) -> None:
    _soft, hard = resource.getrlimit(kind)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (ceiling, ceiling))


def no_new_processes() -> bool:
    """Deny new processes, exec, ptrace, affinity changes, io_uring and mounts, for good.

    Threads stay possible: OpenMP pools are honest. Returns False on a machine whose system calls are not
    tabulated here, or where the kernel refuses filters.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    program = b"".join(_filter(machine))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    return _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header)) == 0


def _op(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _filter(machine: dict[str, object]) -> list[bytes]:
    load, jump_equal, jump_from, jump_set, ret = 0x20, 0x15, 0x35, 0x45, 0x06
    deny, deny_quietly = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    lines = [
        _op(load, 0, 0, 4),  # the architecture
        _op(jump_equal, 1, 0, int(str(machine["arch"]))),
        _op(ret, 0, 0, deny),
        _op(load, 0, 0, 0),  # the system call's number
        _op(jump_from, 0, 1, 0x40000000),  # the x32 interface of x86-64: the same calls under other numbers
        _op(ret, 0, 0, deny),
        # clone3 hides its flags behind a pointer; libc falls back to clone when it is not there
        _op(jump_equal, 0, 1, int(str(machine["clone3"]))),
        _op(ret, 0, 0, deny_quietly),
    ]
    for number in machine["deny"]:  # type: ignore[attr-defined]
        lines += [_op(jump_equal, 0, 1, number), _op(ret, 0, 0, deny)]
    lines += [
        _op(jump_equal, 0, 3, int(str(machine["clone"]))),
        _op(load, 0, 0, 16),  # clone's flags
        _op(jump_set, 1, 0, _CLONE_THREAD),
        _op(ret, 0, 0, deny),
        _op(ret, 0, 0, _ALLOW),
    ]
    return lines

