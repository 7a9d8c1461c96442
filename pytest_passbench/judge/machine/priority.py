"""Real-time priority of the judge and its runners during a pair's rounds, if this machine allows it.

Without it, the runner or the judge may have to wait for a core that another process uses. Other processes also empty
the caches between two blocks. Real-time priority (root, or CAP_SYS_NICE) prevents both. Without it, blocks that had
to wait are recognised by their waiting time (:mod:`pytest_passbench.judge.arms.watch`).
"""

from __future__ import annotations

import contextlib
import functools
import os

_RUNNER, _JUDGE = 1, 2  # the judge comes first: if both share a core, it must be able to stop a runner


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
