"""What the kernel says of a runner: whether it is stopped, its page faults, and how long it waited for its core.

The files in /proc stay open from one block to the next; opening them costs more than reading them.
"""

from __future__ import annotations

import contextlib
import os
import time

from pytest_passbench.judge.arms.processes import Gone, threads

_ROOM = 1024
_MINOR_FAULTS, _THREADS, _RESIDENT = 7, 17, 21  # the fields' places behind the name


def waiting(path: str) -> int:
    """A descriptor of a thread's ``schedstat``. Raises Gone where there is no such thread, or no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Gone(f"{path} can't be read") from error


def waited(descriptor: int) -> float:
    """Seconds that the thread spent ready to run, while its core ran others (``schedstat``, second field)."""
    return int(os.pread(descriptor, _ROOM, 0).split()[1]) * 1e-9


class _Ended(Gone):
    """A process or thread that is no more."""


class _Thread:
    """One thread of a process, by its open files in /proc. Raises Gone."""

    def __init__(self, process: int, thread: int) -> None:
        folder = f"/proc/{process}/task/{thread}"
        self._waited = waiting(f"{folder}/schedstat")
        try:
            self.stat = waiting(f"{folder}/stat")
        except Gone:
            os.close(self._waited)
            raise

    def waited(self) -> float:
        """Seconds that it has waited for a core. Raises Gone."""
        try:
            return waited(self._waited)
        except (OSError, IndexError) as error:
            raise Gone("a thread ended") from error

    def close(self) -> None:
        """Close the files."""
        os.close(self._waited)
        os.close(self.stat)


class Watch:
    """One runner, seen through /proc. Raises Gone once it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat = waiting(f"/proc/{pid}/stat")
        self._threads: dict[int, _Thread] = {}
        self.find_threads()

    def find_threads(self) -> None:
        """Look for threads that started since, and let go of those that ended. That the process has ended is told of
        by whoever asks it next."""
        with contextlib.suppress(Gone):
            there = threads(self.pid)
            for thread in self._threads.keys() - there:
                self._threads.pop(thread).close()
            for thread in there:
                if thread not in self._threads:
                    self._threads[thread] = _Thread(self.pid, thread)

    def waited(self) -> float:
        """Seconds that its threads have waited for a core, all together."""
        whole = 0.0
        for number, thread in self._threads.items():
            try:
                whole += thread.waited()
            except Gone:
                if number == self.pid:
                    raise
        return whole

    def wait_stopped(self, limit: float = 5.0) -> None:
        """Return once it is stopped: all its threads, each of which does so by itself."""
        deadline = time.monotonic() + limit
        if self._stopped(self._stat, deadline) > 1:
            self._wait_for_threads(deadline)

    def _wait_for_threads(self, deadline: float) -> None:
        seen: set[int] = set()
        while True:  # one that runs on may still start another
            self.find_threads()
            if seen == set(self._threads):
                return
            seen = set(self._threads)
            for thread in self._threads.values():
                with contextlib.suppress(_Ended):
                    self._stopped(thread.stat, deadline)

    def _stopped(self, stat: int, deadline: float) -> int:
        """Wait until who has this ``stat`` is stopped; the number of threads that its process then has."""
        while (fields := _fields(stat, self.pid))[0] != "T":
            if fields[0] in "ZX":
                raise _Ended(f"process {self.pid} does not stop: it ended")
            if time.monotonic() > deadline:
                raise Gone(f"process {self.pid} does not stop (state {fields[0]})")
            os.sched_yield()  # it may have to stop on this very core
        return int(fields.split(None, _THREADS + 1)[_THREADS])

    def memory(self) -> tuple[int, int]:
        """Its page faults so far (minor ones, all its threads), and the pages that it has now.

        A fault may be about one page, or about a huge one of 512.
        """
        fields = _fields(self._stat, self.pid).split()
        return int(fields[_MINOR_FAULTS]), int(fields[_RESIDENT])

    def close(self) -> None:
        """Close the files."""
        os.close(self._stat)
        for thread in self._threads.values():
            thread.close()
        self._threads = {}


def _fields(stat: int, pid: int) -> str:
    """What follows the name in a ``stat``: the state, and numbers. Raises Gone."""
    try:
        data = os.pread(stat, _ROOM, 0)
    except OSError as error:
        raise _Ended(f"process {pid} ended") from error
    return data[data.rindex(b")") + 2 :].decode()
