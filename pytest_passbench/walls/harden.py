"""Limits that a process of the untrusted side sets for itself before it runs a candidate's code.

They are resource limits, no core dumps, and a kill when the parent ends. The judge makes sandbox and namespaces.
Filters of system calls are in :mod:`pytest_passbench.walls.seccomp`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from itertools import pairwise

_PR_SET_DUMPABLE, _PR_SET_PDEATHSIG = 4, 1
_PERSONALITY_QUERY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
libc = ctypes.CDLL(None, use_errno=True)  # once, since each new one makes types anew


def prctl(option: int, value: int) -> None:
    """Set a property of this process (``man 2 prctl``)."""
    libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


def not_dumpable() -> None:
    """Hide this process's memory from other processes of the same user."""
    prctl(_PR_SET_DUMPABLE, 0)


def dumpable() -> None:
    """Let the judge read this process's memory. Only processes that may trace this one can."""
    prctl(_PR_SET_DUMPABLE, 1)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def keep_descriptors(*descriptors: int) -> None:
    """Close every descriptor but these. For example, a memory map of Python holds a copy of its file's descriptor."""
    ends = [-1, *sorted(descriptors), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
    for before, after in pairwise(ends):
        os.closerange(before + 1, after)


def heed_no_interrupt() -> None:
    """Restore the kernel's default for SIGINT.

    Process 1 of a namespace then ignores SIGINT from inside. With Python's own handler, a process of the sandbox
    could end the zygote.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def same_layout() -> None:
    """Start this interpreter again without address randomisation, unless it has none already.

    The memory layout changes a program's speed by a few per cent, and all forks of a zygote inherit it. So arms that
    run the same program must have the same layout. Between different programs it remains a part of the measurement.
    """
    now = libc.personality(_PERSONALITY_QUERY)
    if now >= 0 and not now & _ADDR_NO_RANDOMIZE and libc.personality(now | _ADDR_NO_RANDOMIZE) >= 0:
        os.execv(sys.executable, sys.orig_argv)


def limit_resources(memory: int | None, file_bytes: int | None, processes: int) -> None:
    """Set hard limits: bytes of address space and of a file, and the number of this user's processes.

    None is no limit. Core dumps are switched off. A process may have 256 open files. The kernel allows its user as
    many descriptors in unread messages; the judge's limit is higher, so it can always send one.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_NOFILE: 256,
    }
    for kind, value in limits.items():
        if value is None:
            continue
        _soft, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))
