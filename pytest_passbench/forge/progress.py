"""The progress of a long command, on stderr: one line that changes on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time

from pytest_passbench.core.escape import line

PLAIN_SECONDS = 10.0
"""The least time between two updates if stderr is no terminal."""


class Progress:
    """Lines about what a command does. ``stage`` and ``note`` are always shown, ``update`` now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = time.monotonic()

    def stage(self, text: str) -> None:
        """Say that a part of the work begins."""
        if self._terminal:
            self._write(text)
        else:
            self.note(text)

    def update(self, text: str) -> None:
        """Say how far the part has come; without a terminal every :data:`PLAIN_SECONDS` at most."""
        if self._terminal:
            self._write(text)
        elif time.monotonic() - self._shown >= PLAIN_SECONDS:
            self.note(text)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        print(f"forge: {line(text, 300)}", file=sys.stderr, flush=True)
        self._shown = time.monotonic()

    def clear(self) -> None:
        """Remove the line that changes, if there is one."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line(f'forge: {text}', width)}")
        sys.stderr.flush()
