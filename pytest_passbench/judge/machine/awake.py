"""Processes that keep the arms' cores from going idle between two blocks.

An idle core goes to sleep, and a virtual machine gives it back to the host. The next program on it is slower, each
time by another amount. So short blocks scatter more after idleness (figures: benchmarks/LOG.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: The process asks to be killed when its parent ends (PR_SET_PDEATHSIG) before it gives way to all others: on a busy
#: machine it would not come to it afterwards. It closes its output last, which tells the parent that all is done.
_LOOP = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(0)
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.dup2(0, 1)
while True:
    pass
"""


class Awake:
    """A process for each of ``cores`` that only loops. It has the kernel's idle class, so all others run first.

    The processes are started by the first :meth:`on`, and stopped outside of it.
    """

    def __init__(self, cores: Iterable[int]) -> None:
        self._cores = tuple(cores)
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Keep the cores awake within this context."""
        if not self._processes:
            self._processes = [_looping(core) for core in self._cores]
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Release the cores within this context, which lies within :meth:`on`.

        An ordinary process that wakes up there waits for the end of a loop's time slice, although its class comes
        first. That takes some milliseconds (benchmarks/LOG.md).
        """
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []


def _looping(core: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _LOOP, str(os.getpid()), str(core)]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    # In a session of its own: the kernel sends SIGHUP to a process group without a parent that has a stopped member.
    process = subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=nothing, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as output:
        output.read()
    return process
