"""How an arm fails, in the record's words."""

from __future__ import annotations

import signal


class ArmFailure(Exception):
    """An arm failed on a subgraph: ``status`` as in the record, the phase, a message."""

    def __init__(self, status: str, phase: str, message: str) -> None:
        self.status, self.phase, self.message = status, phase, message
        super().__init__(f"{status} in {phase}: {message}")


def ending(number: int, who: str) -> str:
    """How a process ended, in words."""
    if not number:
        return f"{who} ended by itself (exit) without an answer"
    name = signal.Signals(number).name
    hint = " (out of memory, or killed from outside)" if number == signal.SIGKILL else ""
    return f"{who} was killed by {name}{hint}"


def printable(text: str) -> str:
    """Control characters made visible, so that a candidate can't write to anyone's terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)
