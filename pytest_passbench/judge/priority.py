"""Before ordinary processes for the length of a block, where this machine lets us.

Both ends of a block, the runner on its core and the judge that waits for its answer, may have to wait for a core
that another process uses. With real-time priority (root, or CAP_SYS_NICE) neither does. Without, such blocks are
recognised by the time that they waited (:mod:`pytest_passbench.judge.watch`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

_RUNNER, _JUDGE = 1, 2  # the judge first: where both share a core it must be able to stop a runner


@functools.cache
def allowed() -> bool:
    """Whether real-time priority can be had; found out by trying."""
    with contextlib.suppress(OSError), _at(_JUDGE):
        return True
    return False


def prefer(pid: int) -> None:
    """Let a runner go before ordinary processes, whenever it is not stopped."""
    if allowed():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(_RUNNER))


def preferred() -> contextlib.AbstractContextManager[None]:
    """Let the calling thread go before ordinary processes meanwhile."""
    return _at(_JUDGE) if allowed() else contextlib.nullcontext()


@contextlib.contextmanager
def _at(priority: int) -> Iterator[None]:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
