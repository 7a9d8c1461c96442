"""How an arm fails, in the record's words."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

from pytest_passbench.core.record import Finding


class ArmFailure(Exception):
    """An arm failed on a subgraph: ``status`` as in the record, the phase, a message.

    ``findings`` say which rule was broken, if one was, and ``culprits`` by which passes.
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
    """The failure of an arm whose data led the judge to an exception of its own; the place is for who mends it."""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in place)
    said = f"the judge could not handle what it said: {type(error).__name__}{where}: {error}"
    return ArmFailure("integrity", "judge", said[:1000])


def ending(number: int, who: str) -> str:
    """How a process ended, in words."""
    if not number:
        return f"{who} ended by itself (exit) without an answer"
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal, or no signal at all
        name = f"signal {number}"
    hint = " (out of memory, or killed from outside)" if number == signal.SIGKILL else ""
    return f"{who} was killed by {name}{hint}"
