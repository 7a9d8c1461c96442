"""The failures of arms, in the words of the record."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

from pytest_passbench.core.record import Finding


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


def unexpected(error: Exception) -> ArmFailure:
    """Return the failure of an arm whose data caused an exception in the judge.

    The message has the file and line of the judge, so that the exception can be found and mended.
    """
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in place)
    message = f"the judge could not handle what it said: {type(error).__name__}{where}: {error}"
    return ArmFailure("integrity", "judge", message[:1000])


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
