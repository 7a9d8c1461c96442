"""The failures of arms, in the words of the record, and faults, which say nothing of a candidate.

A fault is the machine's or the harness's. This module tells faults from failures.
"""

from __future__ import annotations

import errno
import signal
import traceback
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError, causes
from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms.processes import Gone

_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})
MAX_CHARACTERS = 300  # of a fault's line
#: The exit codes of a process that was killed from outside, and of a shell or bubblewrap whose child was.
KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM})
#: Statuses of an arm whose process failed. With any other one the process itself reports that it can't go on.
PROCESS_FAILED = frozenset({"crash", "timeout", "integrity"})


class ArmFailure(Exception):
    """The failure of an arm on a subgraph: ``status`` and ``phase`` as in the record, and a message.

    If a rule was broken, ``findings`` name it, and ``culprits`` are the passes that broke it.
    """

    def __init__(
        self,
        status: str,
        phase: str,
        message: str,
        findings: tuple[Finding, ...] = (),
        culprits: frozenset[str] = frozenset(),
    ) -> None:
        self.status, self.phase, self.message = status, phase, message
        self.findings, self.culprits = findings, culprits
        super().__init__(f"{status} in {phase}: {message}")

    def add(self, text: str) -> None:
        """Add a line to the message, unless it is empty."""
        self.message += f"\n{text}" if text else ""


def unexpected(error: Exception) -> ArmFailure:
    """Return the failure of an arm whose data caused an exception in the judge, with the judge's file and line."""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in place)
    message = f"the judge could not handle its answer: {type(error).__name__}{where}: {error}"
    return ArmFailure("integrity", "judge", message[:1000])


def last_signal(answer: dict[str, Any]) -> int:
    """Return the last signal in an answer with the processes that ended, or 0 if no signal ended any of them."""
    signals = [number for _pid, number in answer["ended"] if number]
    return signals[-1] if signals else 0


def ending(number: int, who: str) -> str:
    """Return a sentence on how a process ended, from the number of a signal or 0. ``who`` is its subject."""
    if not number:
        return f"{who} ended by itself (exit) without an answer"
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal, or a number that is not a signal
        name = f"signal {number}"
    hint = " (out of memory, or killed from outside)" if number == signal.SIGKILL else ""
    return f"{who} was killed by {name}{hint}"


class HarnessFault(Exception):
    """A fault of the machine, or of processes in which no candidate's code runs."""


class ProcessLost(HarnessFault, UserError):
    """A process of the judge's own that was killed or stopped from outside of its sandbox: no candidate can do so."""


class SandboxFailed(UserError):
    """A sandbox that did not start. No candidate has run in it, so the machine or the installation is at fault."""


#: Errors of the machine or the harness. An error that an arm's data causes in the judge is an ArmFailure instead.
FAULTS = (HarnessFault, SandboxFailed, OSError, MemoryError, Gone)


def is_fault(error: BaseException) -> bool:
    """Return True if an error, or one that caused it, is a fault of the machine or a HarnessFault.

    The machine's are a lack of memory, file descriptors or disk space, and an OSError that names a file outside
    /proc. A missing file of /proc is that of an ended process: its arm's failure, as a lost connection is.
    """
    return any(map(_is_of_the_machine, causes(error)))


def is_loss(error: BaseException) -> bool:
    """Return True if an error, or one that caused it, is the loss of a process of the judge's own."""
    return any(isinstance(cause, ProcessLost) for cause in causes(error))


def fault_line(error: BaseException) -> str:
    """Return an error as one line: that of the fault that caused it, if there is one."""
    cause = next(filter(_is_of_the_machine, causes(error)), error)
    is_own = isinstance(cause, HarnessFault | UserError)
    return line(str(cause) if is_own else f"{type(cause).__name__}: {cause}", MAX_CHARACTERS)


def raise_if_fault(arm: str, failure: ArmFailure) -> None:
    """Raise HarnessFault if the process of ``arm`` failed. No candidate's code may run in it."""
    if failure.status in PROCESS_FAILED:
        raise HarnessFault(f"{arm}: {failure.message}") from failure


def _is_of_the_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        named = isinstance(error.filename, str) and not error.filename.startswith("/proc/")
        return error.errno in _SCARCE or named
    return isinstance(error, HarnessFault | MemoryError)
