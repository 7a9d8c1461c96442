"""What a process of the untrusted side gives up, by itself, before it runs a candidate's code.

The sandbox (namespaces) is the judge's doing; this is the rest: resource limits, no core dumps, and seccomp filters
(:mod:`pytest_passbench.walls.seccomp`) in two steps, one for whatever sees a candidate and one more for measured
runners.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_DUMPABLE, _PR_SET_PDEATHSIG = 4, 1
_PERSONALITY_QUERY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
_libc = ctypes.CDLL(None, use_errno=True)  # once: each new one would make types anew, in every fork


def _prctl(option: int, value: int, pointer: int = 0) -> int:
    arguments = [ctypes.c_ulong(number) for number in (value, pointer, 0, 0)]
    return int(_libc.prctl(option, *arguments))


def not_dumpable() -> None:
    """Keep this process's memory from others of the same user."""
    _prctl(_PR_SET_DUMPABLE, 0)


def dumpable() -> None:
    """Let the judge (and only what may ptrace us) read this process's memory."""
    _prctl(_PR_SET_DUMPABLE, 1)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def heed_no_interrupt() -> None:
    """Have SIGINT do what the kernel does with it: nothing to process 1 of a namespace, if it comes from inside.

    Python's own handler would let a process of the sandbox end the zygote.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def same_layout() -> None:
    """Start this interpreter anew without address randomisation, unless it has none already.

    Where things lie in memory makes a program a few per cent faster or slower, and all forks of a zygote inherit
    its layout. So arms that run the same program must have the same one; between different programs it stays part
    of what is measured.
    """
    now = _libc.personality(_PERSONALITY_QUERY)
    if now >= 0 and not now & _ADDR_NO_RANDOMIZE and _libc.personality(now | _ADDR_NO_RANDOMIZE) >= 0:
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
