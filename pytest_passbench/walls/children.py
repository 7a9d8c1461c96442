"""Child processes that have ended."""

from __future__ import annotations

import os


def reap() -> list[list[int]]:
    """Return the children that have ended: the process id in this namespace, and the signal that ended it or 0."""
    ended: list[list[int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append([pid, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0])
