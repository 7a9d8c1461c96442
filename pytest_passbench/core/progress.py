"""The progress of a long command, on stderr: one line that changes on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Self

from pytest_passbench.core.escape import line

PLAIN_SECONDS, TERMINAL_SECONDS = 10.0, 0.1
"""The least time between two updates, without and with a terminal."""


class ProgressLines:
    """Lines about what ``command`` does. ``stage`` and ``note`` are always shown, ``update`` now and then.

    As a context manager it clears the line at its end.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = time.monotonic() - TERMINAL_SECONDS  # the first update is shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.clear()

    def stage(self, text: str) -> None:
        """Say that a part of the work begins."""
        if not self._terminal:
            self.note(text)
            return
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line(f'{self._command}: {text}', width)}")
        sys.stderr.flush()
        self._shown_at = time.monotonic()

    def update(self, text: str) -> None:
        """Say how far the part has come, unless a line was shown a moment ago."""
        if time.monotonic() - self._shown_at >= (TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS):
            self.stage(text)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        print(f"{self._command}: {line(text, 300)}", file=sys.stderr, flush=True)
        self._shown_at = time.monotonic()

    def clear(self) -> None:
        """Remove the line that changes, if there is one."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
