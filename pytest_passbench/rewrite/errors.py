"""The error of a pass before its kernel runs."""

from __future__ import annotations


class PassError(Exception):
    """A pass that cannot be loaded or applied, which is the candidate's fault (status ``compile_fail``).

    ``name`` is the pass's file stem. ``message`` says what is wrong, with file and line if they are known.
    """

    def __init__(self, name: str, message: str) -> None:
        self.name, self.message = name, message
        super().__init__(f"pass {name}: {message}")
