"""The judge's own process: its limits, its heap, and its priority.

Nobody may lower its limits while it works, since its failures would then decide results. During a pair's rounds the
judge and its runners have real-time priority if the machine allows it (root, or CAP_SYS_NICE). Then neither waits for
a core, and no other process empties the caches between two blocks. Otherwise blocks that had to wait are recognised
by their waiting time (:mod:`pytest_passbench.judge.arms.watch`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource

from pytest_passbench.core.errors import UserError

KINDS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, other C libraries need not
_RUNNER, _JUDGE = 1, 2  # the judge comes first: if both share a core, it must be able to stop a runner


class ProcessLimits:
    """The limits and the priority that this process had when it was made."""

    def __init__(self) -> None:
        self._limits = {name: resource.getrlimit(kind) for name, kind in KINDS.items()}
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)

    def check(self) -> None:
        """Raise UserError if a limit or the priority is lower than it was.

        A subgraph that is not judged by then has no record and counts as a failure: lowering a limit gains nothing.
        """
        for name, before in self._limits.items():
            now = resource.getrlimit(KINDS[name])
            if any(map(_is_lower, now, before)):
                self._refuse(f"{name} was {_words(before)} and is {_words(now)}")
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        if nice > self._nice:
            self._refuse(f"its nice value was {self._nice} and is {nice}")

    def _refuse(self, what: str) -> None:
        raise UserError(f"the judge's own limits were lowered while it worked: {what}",
                        remedy="find out who did it, and run again")  # fmt: skip


def _is_lower(now: int, before: int) -> bool:
    return now != before and now != resource.RLIM_INFINITY and (before == resource.RLIM_INFINITY or now < before)


def _words(limit: tuple[int, int]) -> str:
    return " of ".join("unlimited" if end == resource.RLIM_INFINITY else str(end) for end in limit)


def give_back() -> None:
    """Give the free memory of the heap back to the system, wherever in it that lies (``man malloc_trim``)."""
    if _trim is not None:
        _trim(0)


@functools.cache
def allowed() -> bool:
    """Return True if real-time priority is available. It is tried once per process."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_JUDGE))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


def prefer(pid: int) -> None:
    """Give a runner real-time priority, so that it runs before ordinary processes whenever it is not stopped."""
    if allowed():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(_RUNNER))


def no_longer(pid: int) -> None:
    """Take a runner's real-time priority back."""
    if allowed():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


class Preference:
    """The calling thread's priority, which is real-time between :meth:`begin` and :meth:`end`."""

    def __init__(self) -> None:
        self._before: tuple[int, os.sched_param] | None = None

    def begin(self) -> None:
        """Run before ordinary processes from now on, if that is allowed."""
        if self._before is None and allowed():
            self._before = os.sched_getscheduler(0), os.sched_getparam(0)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_JUDGE))

    def end(self) -> None:
        """Restore the previous priority. Do nothing if it was not changed."""
        if self._before is not None:
            os.sched_setscheduler(0, *self._before)
            self._before = None
