"""The cores that the arms run on, and the locks that keep other workers from timing on them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.device import is_cuda
from pytest_passbench.judge.machine.gpu import device_name

_DEVICE = "device-"  # begins the name of a device's lock


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
        """Return cores for ``threads`` threads: the last ones of this process's mask.

        Each ``worker`` gets a set of its own if there are enough cores.
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
        """Return the names of the machine-wide locks that a run on ``device`` times under."""
        cores = [f"core-{core}" for core in self.arms]
        return [*cores, f"{_DEVICE}{device_name(device)}"] if is_cuda(device) else cores


def device_locks(locks: list[str]) -> list[str]:
    """Return those of :meth:`Cores.locks` that are of devices."""
    return [name for name in locks if name.startswith(_DEVICE)]


@contextlib.contextmanager
def exclusive(names: list[str]) -> Iterator[None]:
    """Hold the machine-wide locks of these cores or devices, so that two runs never time on them at once.

    The locks are taken in the order of their names, so that two runs can't wait for each other.
    """
    with contextlib.ExitStack() as stack:
        for name in sorted(names):
            handle = stack.enter_context(_open(name))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _open(name: str) -> Iterator[int]:
    path = Path(tempfile.gettempdir()) / f"passbench-{name}.lock"
    # Every user of the machine may take the lock. A file of another user can be locked when it is open for reading.
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Keep the calling thread on these cores within this context."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
