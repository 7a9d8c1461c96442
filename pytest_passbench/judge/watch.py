"""What the kernel says of a runner: whether it is stopped, its page faults, and how long it waited for its core.

The files in /proc stay open from one block to the next; opening them costs more than reading them.
"""

from __future__ import annotations

import contextlib
import os
import time

from .processes import Gone, threads

_ROOM = 1024
_MINOR_FAULTS, _RESIDENT = 7, 21  # the fields' places behind the name


def waiting(path: str) -> int:
    """A descriptor of a thread's ``schedstat``. Raises Gone where there is no such thread, or no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Gone(f"{path} can't be read") from error


def waited(descriptor: int) -> float:
    """Seconds that the thread spent ready to run, while its core ran others (``schedstat``, second field)."""
    return int(os.pread(descriptor, _ROOM, 0).split()[1]) * 1e-9


class Watch:
    """One runner, seen through /proc. Raises Gone once it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat = waiting(f"/proc/{pid}/stat")
        self._threads: dict[int, int] = {}
        self.find_threads()

    def find_threads(self) -> None:
        """Look for threads that started since. What has ended meanwhile is told of by whoever asks it next."""
        with contextlib.suppress(Gone):
            for thread in threads(self.pid):
                if thread not in self._threads:
                    self._threads[thread] = waiting(f"/proc/{self.pid}/task/{thread}/schedstat")

    def waited(self) -> float:
        """Seconds that its threads have waited for a core, all together."""
        try:
            return sum(waited(descriptor) for descriptor in self._threads.values())
        except (OSError, IndexError) as error:
            raise Gone(f"a thread of process {self.pid} ended") from error

    def wait_stopped(self, limit: float = 5.0) -> None:
        """Return once it is stopped; its threads stop together."""
        if self._state()[0] != "T":
            self._wait_stopped(time.monotonic() + limit)

    def _wait_stopped(self, deadline: float) -> None:
        while (state := self._state()[0]) != "T":
            os.sched_yield()  # it may have to stop on this very core
            if state in "ZX" or time.monotonic() > deadline:
                raise Gone(f"process {self.pid} does not stop (state {state})")

    def memory(self) -> tuple[int, int]:
        """Its page faults so far (minor ones, all its threads), and the pages that it has now.

        A fault may be about one page, or about a huge one of 512.
        """
        fields = self._state().split()
        return int(fields[_MINOR_FAULTS]), int(fields[_RESIDENT])

    def _state(self) -> str:
        """What follows the name in the process's ``stat``: its state, and numbers."""
        try:
            data = os.pread(self._stat, _ROOM, 0)
        except OSError as error:
            raise Gone(f"process {self.pid} ended") from error
        return data[data.rindex(b")") + 2 :].decode()

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._stat, *self._threads.values()):
            os.close(descriptor)
        self._threads = {}
