"""The cores that the arms run on, the locks that keep other workers from timing on them, and what keeps them awake.

An idle core goes to sleep, and a virtual machine gives it back to the host. The next program on it is slower, each
time by another amount. So processes keep the arms' cores from going idle between two blocks. Without them short
blocks scatter more after idleness (figures: benchmarks/LOG.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.device import is_cuda
from pytest_passbench.judge.machine.gpu import device_name

_DEVICE = "device-"  # begins the name of a device's lock
#: The process asks to be killed when its parent ends (PR_SET_PDEATHSIG). It does so before it takes the idle class,
#: in which it may get no core on a busy machine. It closes its output last, which tells the parent that it is set up.
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


@dataclass(frozen=True)
class Cores:
    """A worker's cores: ``arms`` are used by every arm, one after the other; ``judge`` are the others.

    Templates fork on the ``forking`` cores while nothing is timed. These are the arms' cores, and one that no
    worker's arms use.
    """

    arms: frozenset[int]
    judge: frozenset[int]
    forking: tuple[int, ...]

    @classmethod
    def choose(cls, threads: int, worker: int = 0) -> Cores:
        """Return a worker's cores. Its arms have ``threads`` cores from the end of this process's affinity mask.

        Each ``worker``, from 0, gets a set of its own if there are enough.
        """
        available = sorted(os.sched_getaffinity(0))
        threads = min(threads, len(available))
        groups = max(1, (len(available) - 1) // threads)
        last = len(available) - threads * (worker % groups)
        arms = frozenset(available[last - threads : last])
        free = available[: len(available) - threads * groups] or available
        forking = dict.fromkeys([free[worker % len(free)], *sorted(arms)])
        return cls(arms, frozenset(available) - arms or frozenset(available), tuple(forking))

    def locks(self, device: str) -> list[str]:
        """Return the names of the machine-wide locks that a run on ``device`` holds while it times."""
        cores = [f"core-{core}" for core in self.arms]
        # A slice of a GPU may have slashes in its name, and each lock is a file of its name.
        return [*cores, f"{_DEVICE}{device_name(device).replace('/', '_')}"] if is_cuda(device) else cores


def device_locks(locks: list[str]) -> list[str]:
    """Return those names from :meth:`Cores.locks` that are the names of devices' locks."""
    return [name for name in locks if name.startswith(_DEVICE)]


@contextlib.contextmanager
def exclusive(names: list[str]) -> Iterator[None]:
    """Hold the machine-wide locks of these cores or devices, so that two runs never time on them at once.

    The locks are taken in the order of their names, so that two runs can't wait for each other.
    """
    with contextlib.ExitStack() as stack:
        for name in sorted(names):
            handle = _open(name)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _open(name: str) -> int:
    path = Path(tempfile.gettempdir()) / f"passbench-{name}.lock"
    # Every user of the machine may take the lock. A file of another user can be locked when it is open for reading.
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    if os.fstat(handle).st_nlink == 1:  # the mode of a file with another name (a hard link) must not change
        with contextlib.suppress(OSError):
            os.fchmod(handle, 0o666)  # whatever the umask is
    return handle


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Keep the calling thread on these cores within this context."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Awake:
    """A process for each of ``cores`` that only loops. It has the kernel's idle class, so all others run first.

    The processes are started by the first :meth:`on`, and stopped outside of it.
    """

    def __init__(self, cores: Iterable[int]) -> None:
        self._cores = tuple(cores)
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Keep the cores awake within this context."""
        if not self._processes:
            self._processes = [_looping(core) for core in self._cores]
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    @contextlib.contextmanager
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
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []


def _looping(core: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _LOOP, str(os.getpid()), str(core)]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    # In a session of its own: the kernel sends SIGHUP to an orphaned process group that has a stopped member.
    process = subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=nothing, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as output:
        output.read()
    return process
