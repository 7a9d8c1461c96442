"""Where the time of a subgraph goes: seconds by phase, disjoint and complete."""

from __future__ import annotations

import time


class Stopwatch:
    """Adds to ``spent`` what each phase takes by itself: entering one phase within another pauses the outer."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent
        self._open: list[str] = []
        self._since = 0.0

    def __call__(self, phase: str) -> _Phase:
        """Time ``phase``, as a context."""
        return _Phase(self, phase)

    def enter(self, phase: str) -> None:
        """``phase`` begins."""
        self._note()
        self._open.append(phase)

    def leave(self) -> None:
        """The phase that began last ends."""
        self._note()
        self._open.pop()

    def _note(self) -> None:
        now = time.perf_counter()
        if self._open:
            phase = self._open[-1]
            self.spent[phase] = self.spent.get(phase, 0.0) + now - self._since
        self._since = now


class _Phase:
    """A class of its own: a generator's context takes more than twice as long, a dozen times a round."""

    __slots__ = ("_phase", "_watch")

    def __init__(self, watch: Stopwatch, phase: str) -> None:
        self._watch, self._phase = watch, phase

    def __enter__(self) -> None:
        self._watch.enter(self._phase)

    def __exit__(self, *_exception: object) -> None:
        self._watch.leave()
