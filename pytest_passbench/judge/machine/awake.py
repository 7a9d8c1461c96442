"""Keeping the arms' cores from going idle between two blocks.

A core that has nothing to do goes to sleep, and that of a virtual machine is given back to the host. What runs on it
next is slower, each time by another amount: blocks of 0.4 ms were 4 to 5 % apart after 0.3 ms of idleness, and 1.6 %
where the core had been kept awake (docs/measuring.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LOOP = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"  # it ends with the thread that started it


class Awake:
    """A process for each of ``cores`` that only loops, in the kernel's idle class: all else that is to run there
    comes first. They are started when they are first needed, and stopped but for :meth:`on`.
    """

    def __init__(self, cores: Iterable[int]) -> None:
        self._cores = tuple(cores)
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Keep the cores awake meanwhile."""
        if not self._processes:
            self._processes = [_looping(core) for core in self._cores]
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Within :meth:`on`, let go of the cores: what runs there as an ordinary process, not before them, waits for
        a loop's time slice to end (3 to 5 ms), although it would come first."""
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
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _LOOP], stdin=subprocess.DEVNULL)
    os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(process.pid, {core})
    return process
