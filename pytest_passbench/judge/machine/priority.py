"""Before ordinary processes for the length of a pair's rounds, where this machine lets us.

Both ends of a block, the runner on its core and the judge that waits for its answer, may have to wait for a core
that another process uses; and what others run between two blocks empties the caches. With real-time priority (root,
or CAP_SYS_NICE) neither happens. Without, blocks that had to wait are recognised by that
(:mod:`pytest_passbench.judge.arms.watch`).
"""

from __future__ import annotations

import contextlib
import functools
import os

_RUNNER, _JUDGE = 1, 2  # the judge first: where both share a core it must be able to stop a runner


@functools.cache
def allowed() -> bool:
    """Whether real-time priority can be had; found out by trying."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_JUDGE))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


def prefer(pid: int) -> None:
    """Let a runner go before ordinary processes, whenever it is not stopped."""
    if allowed():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(_RUNNER))


def no_longer(pid: int) -> None:
    """Take a runner's preference back."""
    if allowed():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


class Preference:
    """The calling thread's priority: before ordinary processes between :meth:`begin` and :meth:`end`."""

    def __init__(self) -> None:
        self._before: tuple[int, os.sched_param] | None = None

    def begin(self) -> None:
        """Go before ordinary processes from now on, where that is allowed."""
        if self._before is None and allowed():
            self._before = os.sched_getscheduler(0), os.sched_getparam(0)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_JUDGE))

    def end(self) -> None:
        """Go back to what it was."""
        if self._before is not None:
            os.sched_setscheduler(0, *self._before)
            self._before = None
