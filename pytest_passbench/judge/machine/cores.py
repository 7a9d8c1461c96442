"""Which cores the arms run on, and the lock that keeps timed blocks of other workers off them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cores:
    """``arms``: the cores that every arm runs on, one after the other; ``judge``: the others.

    ``forking``: where templates fork when nothing is timed: on those of the arms, and on one that is nobody's.
    """

    arms: frozenset[int]
    judge: frozenset[int]
    forking: tuple[int, ...]

    @classmethod
    def choose(cls, threads: int, worker: int = 0) -> Cores:
        """The last cores of this process's mask, another set for another worker where there are enough."""
        mine = sorted(os.sched_getaffinity(0))
        threads = min(threads, len(mine))
        groups = max(1, (len(mine) - 1) // threads)
        last = len(mine) - threads * (worker % groups)
        arms = frozenset(mine[last - threads : last])
        free = mine[: len(mine) - threads * groups] or mine
        forking = dict.fromkeys([free[worker % len(free)], *sorted(arms)])
        return cls(arms, frozenset(mine) - arms or frozenset(mine), tuple(forking))


@contextlib.contextmanager
def exclusive(names: list[str]) -> Iterator[None]:
    """Hold the machine-wide locks of these cores or devices, in order, so that no two runs time each other."""
    with contextlib.ExitStack() as stack:
        for name in sorted(names):
            handle = stack.enter_context(_open(name))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _open(name: str) -> Iterator[int]:
    path = Path(tempfile.gettempdir()) / f"passbench-{name}.lock"
    # Anyone on the machine may take the lock; a file that another user made can be locked read-only.
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
    """Keep the calling thread on these cores meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
