"""Where the time of a subgraph goes: seconds by phase, disjoint and complete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds to ``spent`` what each phase takes by itself: entering one phase within another pauses the outer."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time ``phase``."""
        self._note()
        self._open.append(phase)
        try:
            yield
        finally:
            self._note()
            self._open.pop()

    def _note(self) -> None:
        now = time.perf_counter()
        if self._open:
            phase = self._open[-1]
            self.spent[phase] = self.spent.get(phase, 0.0) + now - self._since
        self._since = now
