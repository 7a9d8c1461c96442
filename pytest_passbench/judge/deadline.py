"""The time that a candidate has for one subgraph (``passbench_timeout``)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

SAFETY = 1.5


class Deadline:
    """The end of a case's time: ``limit`` seconds after its start, and later by all time that is not the candidate's.

    The clock runs unless it is :meth:`paused`. So a wait that nobody thought of counts.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._clock = limit, clock
        self._end = clock() + limit
        self._pauses, self._since = 0, 0.0

    def left(self) -> float:
        """Return the seconds that are left, 0 if there are none."""
        return max(0.0, self._end - (self._since if self._pauses else self._clock()))

    def paused(self, really: bool = True) -> _Pause:
        """Stop the clock, as a context; not if ``really`` is False. Pauses may be nested."""
        return _Pause(self, really)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock of a paused deadline run, as a context."""
        self.resume()
        try:
            yield
        finally:
            self.pause()

    def pause(self) -> None:
        """Stop the clock."""
        if not self._pauses:
            self._since = self._clock()
        self._pauses += 1

    def resume(self) -> None:
        """End the pause that began last."""
        self._pauses -= 1
        if not self._pauses:
            self._end += self._clock() - self._since


class Pace:
    """The question whether there is time for another step, and for what comes after the last one.

    Call it before each step. A step is expected to take no longer than :data:`SAFETY` times the longest so far.
    ``reserve`` are the seconds for what comes after.
    """

    def __init__(self, deadline: Deadline, reserve: float) -> None:
        self._deadline, self._reserve = deadline, reserve
        self._before, self._longest = deadline.left(), 0.0

    def __call__(self) -> bool:
        """Return True if there is time for another step."""
        left = self._deadline.left()
        self._longest = max(self._longest, self._before - left)
        self._before = left
        return left > SAFETY * self._longest + self._reserve


class _Pause:
    """A pause as a context. A class takes less time than a generator, several times in each round."""

    __slots__ = ("_deadline", "_really")

    def __init__(self, deadline: Deadline, really: bool) -> None:
        self._deadline, self._really = deadline, really

    def __enter__(self) -> None:
        if self._really:
            self._deadline.pause()

    def __exit__(self, *_exception: object) -> None:
        if self._really:
            self._deadline.resume()
