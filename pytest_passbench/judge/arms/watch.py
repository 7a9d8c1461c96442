"""A runner's state as the kernel reports it: whether it is stopped, its page faults, its waiting for a core.

The files in /proc stay open from one block to the next, because opening them costs more than reading them.
Source for their fields: proc(5), and ``Documentation/scheduler/sched-stats.rst`` of the Linux kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from pytest_passbench.judge.arms.processes import Gone, threads

STOP_SECONDS = 60.0
"""A process that was stopped may have to run once more to stop. Where ten others are ready for its core, that took
more than five seconds."""
_POLL_SECONDS = 2e-5  # a sleeping process stops within this time
_libc = ctypes.CDLL(None)
_MAX_FILE_BYTES = 1024
_YIELDS = 100  # of the judge's core before its first sleep, since a sleep takes longer than most stops
_MINOR_FAULTS, _THREADS, _RESIDENT = 7, 17, 21  # indices of the fields of ``stat`` after the process's name


def _opened(path: str) -> int:
    """Return a descriptor of a thread's file of /proc. Raises Gone if there is no such thread, or no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Gone(f"{path} can't be read") from error


def waiting_times(folder: str) -> int | None:
    """Return a descriptor for :func:`waited` of a thread's folder in /proc; None if the kernel has no such file."""
    try:
        return _opened(f"{folder}/schedstat")
    except Gone:
        return None


def waited(descriptor: int | None) -> float:
    """Return the seconds that a thread was ready but had to wait (second field of ``schedstat``); 0 for None."""
    return 0.0 if descriptor is None else int(os.pread(descriptor, _MAX_FILE_BYTES, 0).split()[1]) * 1e-9


class _Ended(Gone):
    """A process or thread has ended."""


class _Thread(NamedTuple):
    """The open files of a thread's folder in /proc: its ``stat``, and its :func:`waiting_times`."""

    stat: int
    waiting: int | None

    def close(self) -> None:
        if self.waiting is not None:
            os.close(self.waiting)
        os.close(self.stat)


class Watch:
    """A runner as /proc shows it. Its methods raise Gone once it has ended.

    The waiting times of all its threads count, or that of the first one alone if ``first_only``.
    """

    def __init__(self, pid: int, first_only: bool = False) -> None:
        self.pid, self._first_only = pid, first_only
        self._stat = _opened(f"/proc/{pid}/stat")
        self._threads: dict[int, _Thread] = {}
        self.find_threads()

    def find_threads(self) -> None:
        """Look for new threads, and close the files of ended ones.

        If the process has ended, this does nothing: the next method that needs it raises Gone.
        """
        with contextlib.suppress(Gone):
            there = threads(self.pid)
            for thread in self._threads.keys() - there:
                self._threads.pop(thread).close()
            for thread in there:
                if thread not in self._threads:
                    folder = f"/proc/{self.pid}/task/{thread}"
                    with contextlib.suppress(Gone):  # it may have ended since
                        self._threads[thread] = _Thread(_opened(f"{folder}/stat"), waiting_times(folder))

    @property
    def threads(self) -> frozenset[int]:
        """The ids of the threads that were found so far and have not ended."""
        return frozenset(self._threads)

    def waited(self) -> float:
        """Return the seconds that its threads have waited for a core, all together."""
        whole = 0.0
        for number, thread in self._threads.items():
            if self._first_only and number != self.pid:
                continue
            try:
                whole += waited(thread.waiting)
            except (OSError, IndexError) as error:  # it has ended
                if number == self.pid:
                    raise Gone(f"process {self.pid} ended") from error
        return whole

    def stop_threads(self) -> None:
        """Send SIGSTOP to each thread but the first, to which the process's own SIGSTOP goes.

        The first thread acts on that signal once it gets a core, which may take some milliseconds. Until then, a
        waiting thread of an OpenMP pool would spin on that core.
        """
        for thread in self._threads.keys() - {self.pid}:
            _libc.tgkill(self.pid, thread, signal.SIGSTOP)

    def wait_stopped(self, limit: float = STOP_SECONDS) -> None:
        """Wait until each of its threads is stopped. Raises Gone if they are not within ``limit`` seconds."""
        deadline = time.monotonic() + limit
        if self._stopped(self._stat, deadline) > 1:
            self._wait_for_threads(deadline)

    def _wait_for_threads(self, deadline: float) -> None:
        stopped: set[int] = set()
        while True:  # a thread that still runs may start another
            self.find_threads()
            if stopped == set(self._threads):
                return
            stopped = set(self._threads)
            for thread in self._threads.values():
                with contextlib.suppress(_Ended):
                    self._stopped(thread.stat, deadline)

    def _stopped(self, stat: int, deadline: float) -> int:
        """Wait until the thread with this ``stat`` is stopped. Return the number of threads of its process then."""
        looks = 0
        while (fields := _fields(stat, self.pid))[0] != "T":
            if fields[0] in "ZX":
                raise _Ended(f"process {self.pid} ended before it stopped")
            if time.monotonic() > deadline:
                raise Gone(f"process {self.pid} does not stop (state {fields[0]})")
            if looks < _YIELDS:
                os.sched_yield()  # it may have to stop on this core
            else:
                time.sleep(_POLL_SECONDS)  # a judge with real-time priority yields to no process of a lower one
            looks += 1
        return int(fields.split(None, _THREADS + 1)[_THREADS])

    def instructions(self) -> list[int]:
        """Return the addresses of the instructions that come next for its stopped threads, the first thread's first.

        In a system call, that is the one after the call. A thread that has ended, or of which Linux does not tell, is
        left out.
        """
        addresses = []
        for thread in sorted(self._threads, key=lambda thread: thread != self.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{self.pid}/task/{thread}/syscall").read_text().split()
                addresses += [int(words[-1], 16)] if len(words) > 1 else []
        return addresses

    def memory(self) -> tuple[int, int]:
        """Return its minor page faults so far (all threads), and the number of its resident pages now.

        A fault may bring one page, or a huge page, which counts as 512 pages.
        """
        fields = _fields(self._stat, self.pid).split()
        return int(fields[_MINOR_FAULTS]), int(fields[_RESIDENT])

    def close(self) -> None:
        os.close(self._stat)
        for thread in self._threads.values():
            thread.close()
        self._threads = {}


def wait_stopped(pid: int) -> None:
    """Wait until each thread of a process is stopped. Raises Gone as :meth:`Watch.wait_stopped` does."""
    with contextlib.closing(Watch(pid)) as watch:
        watch.wait_stopped()


def _fields(stat: int, pid: int) -> str:
    """Return the fields of a ``stat`` file after the process's name: a state and numbers. Raises Gone."""
    try:
        data = os.pread(stat, _MAX_FILE_BYTES, 0)
    except OSError as error:
        raise _Ended(f"process {pid} ended") from error
    return data[data.rindex(b")") + 2 :].decode()
