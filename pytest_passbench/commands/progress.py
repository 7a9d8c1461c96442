"""A line on the terminal that tells how far a command has come."""

from __future__ import annotations

import sys
import time

INTERVAL_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """A line that is written over again on stderr, if that is a terminal. Elsewhere nothing is written."""

    def __init__(self) -> None:
        self._shown, self._next = sys.stderr.isatty(), 0.0

    def show(self, text: str) -> None:
        """Show ``text``, unless another one was shown a moment ago."""
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL_SECONDS
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
