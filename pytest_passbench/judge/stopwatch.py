"""The account of a subgraph's time: seconds by phase, disjoint and complete."""

from __future__ import annotations

import time


class Stopwatch:
    """A stopwatch that adds the seconds of each phase to ``spent``. An inner phase pauses the outer one."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent
        self._open: list[str] = []
        self._since = 0.0

    def __call__(self, phase: str) -> _Phase:
        """Time ``phase``, as a context."""
        return _Phase(self, phase)

    def enter(self, phase: str) -> None:
        """Begin ``phase``, and pause the present one."""
        self._note()
        self._open.append(phase)

    def leave(self) -> None:
        """End the phase that began last."""
        self._note()
        self._open.pop()

    def _note(self) -> None:
        now = time.perf_counter()
        if self._open:
            phase = self._open[-1]
            self.spent[phase] = self.spent.get(phase, 0.0) + now - self._since
        self._since = now


class _Phase:
    """A phase as a context. A class takes less than half of the time of a generator, a dozen times in each round."""

    __slots__ = ("_phase", "_watch")

    def __init__(self, watch: Stopwatch, phase: str) -> None:
        self._watch, self._phase = watch, phase

    def __enter__(self) -> None:
        self._watch.enter(self._phase)

    def __exit__(self, *_exception: object) -> None:
        self._watch.leave()
