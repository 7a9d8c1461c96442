"""Confinement of an arm without bubblewrap: files by Landlock, capabilities, and orphaned processes.

Landlock is described in the kernel's ``Documentation/userspace-api/landlock.rst``. It binds this process and all that
it starts. They can open only the listed paths. They cannot trace processes outside or read their memory. From version
6 of the interface on, they cannot signal processes outside or reach their abstract sockets.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

from pytest_passbench.walls.harden import libc, prctl

_CREATE, _ADD_RULE, _RESTRICT_SELF, _CAPSET = 444, 445, 446, 0
_PATH_BENEATH = 1
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_WRITE_FILE = 1 << 1
_WRITE = (1 << 13) - 1 - _READ  # write, remove, make, …
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_REFER, _TRUNCATE, _DEVICES = 1 << 13, 1 << 14, 1 << 15  # since versions 2, 3, 5
_TCP = 0b11  # bind, connect: since version 4
_SCOPES = 0b11  # abstract sockets, signals: since version 6
_PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 38, 36
_CAPABILITY_VERSION_3 = 0x20080522
_REFUSED = "the kernel refuses rules of Landlock"


def confine(readable: Sequence[str], writable: Sequence[str], named: bool = False) -> None:
    """Confine this process to these paths from now on, if the kernel has Landlock. Raises OSError.

    With ``named`` it may write to existing files of /proc too. A process forked from it has to give up this right
    (:func:`keep_own_names`).
    """
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that the judge finds all orphans
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _landlock(readable, writable, ("/proc",) if named else ())
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    libc.capset(header, bytes(24))  # drops all capabilities


def keep_own_names(writable: Sequence[str]) -> None:
    """Deny writing to files, except below ``writable`` and in this process's own folder of threads in /proc.

    CUDA's driver names its threads there, and fails if it can't. A rule is about the folder of one process, so it can
    only be made in the process itself. Landlock's rulesets add up: a process may do what all of them allow. The
    descriptor that is left open keeps the kernel from making the folder anew, without the rule. Nothing is denied if
    the kernel has no Landlock. Raises OSError.
    """
    version = _landlock_version()
    if version < 1:
        return
    rights, task_folder = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0), f"/proc/{os.getpid()}/task"
    os.open(task_folder, os.O_PATH | os.O_CLOEXEC)
    _restrict(struct.pack("<Q", rights), [(path, rights) for path in (*writable, task_folder)])


def _landlock_version() -> int:
    """Return the version of the kernel's interface of Landlock, less than 1 if it has none."""
    return int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def _landlock(readable: Sequence[str], writable: Sequence[str], changed: Sequence[str]) -> None:
    """Put this process under a Landlock ruleset, if the kernel has it. Raises OSError.

    Below ``changed`` existing files may be written to.
    """
    version = _landlock_version()
    if version < 1:
        return
    newer = (_REFER, 2), (_TRUNCATE, 3), (_DEVICES, 5)
    every = _READ | _WRITE | sum(right for right, since in newer if version >= since)
    ruleset = struct.pack("<QQQ", every, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    parts = (readable, _READ), (writable, every), (changed, every & (_WRITE_FILE | _TRUNCATE))
    _restrict(ruleset[:size], [(path, rights) for paths, rights in parts for path in paths])


def _restrict(ruleset: bytes, allowed: Sequence[tuple[str, int]]) -> None:
    """Put this process under a ruleset, with rights below some paths. Raises OSError if the kernel refuses."""
    rules = libc.syscall(_CREATE, ruleset, ctypes.c_size_t(len(ruleset)), ctypes.c_uint32(0))
    if rules < 0:
        raise OSError(ctypes.get_errno(), _REFUSED)
    try:
        for path, rights in allowed:
            _allow(rules, path, rights)
        if libc.syscall(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), _REFUSED)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    """Add a rule for a path. A path that does not exist needs none."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _ON_FILES
        rule = struct.pack("<Qi", rights, handle)
        libc.syscall(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(handle)


def reap() -> list[list[int]]:
    """Return the children that have ended: the process id in this namespace, and the signal that ended it or 0."""
    ended: list[list[int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append([pid, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0])
