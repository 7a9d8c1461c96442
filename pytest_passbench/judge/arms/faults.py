"""Faults of the machine and of the harness, which say nothing of a candidate, and how they are told from failures."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.judge.arms.processes import Gone


class HarnessFault(Exception):
    """A fault of the machine, or of processes in which no candidate's code runs."""


class SandboxFailed(UserError):
    """A sandbox that did not start. No candidate has run in it, so the machine or the installation is at fault."""


#: What can go wrong around a subgraph. Whatever an arm's data does to the judge is an ArmFailure instead.
FAULTS = (HarnessFault, SandboxFailed, OSError, MemoryError, Gone)
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})
MAX_CHARACTERS = 300


def is_fault(error: BaseException) -> bool:
    """Return True if an error, or one that caused it, comes of the machine: a lack of memory, of files or of room.

    Files of /proc are missing when a process has ended, which is its arm's failure. So is a connection that is lost.
    """
    return any(map(_is_of_the_machine, _causes(error)))


def fault_line(error: BaseException) -> str:
    """Return a fault in one line: the machine's, if one is behind it."""
    cause = next(filter(_is_of_the_machine, _causes(error)), error)
    is_own = isinstance(cause, HarnessFault | UserError)
    return line(str(cause) if is_own else f"{type(cause).__name__}: {cause}", MAX_CHARACTERS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_of_the_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        named = isinstance(error.filename, str) and not error.filename.startswith("/proc/")
        return error.errno in _SCARCE or named
    return isinstance(error, HarnessFault | MemoryError)
