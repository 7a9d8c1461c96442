"""A queue in front of what one caller may use at a time. Who comes first is served first."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_passbench.core.errors import UserError

POLL_SECONDS = 0.2  # between two looks at whether a waiting caller is still there


class TurnLost(UserError):
    """The end of waiting without a turn: the caller has gone, or the queue is closed."""


class Turns:
    """A queue of callers in threads. Once it is closed, nobody gets a turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets: deque[object] = deque()
        self.closed = False

    def __len__(self) -> int:
        """Return the number of callers: the one whose turn it is, and those that wait."""
        return len(self._tickets)

    @contextmanager
    def turn(self, is_awaited: Callable[[], bool]) -> Iterator[float]:
        """Wait for a turn, which lasts as long as the context; its value is the seconds of waiting.

        ``is_awaited`` is asked whether anybody still waits for the result. Raises TurnLost.
        """
        ticket, begun = object(), time.monotonic()
        with self._changed:
            self._tickets.append(ticket)
        try:
            self._wait(ticket, is_awaited)
            yield time.monotonic() - begun
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    def _wait(self, ticket: object, is_awaited: Callable[[], bool]) -> None:
        with self._changed:
            while True:
                if self.closed:
                    raise TurnLost("the judge is closed")
                if not is_awaited():
                    raise TurnLost("the caller has gone")
                if self._tickets[0] is ticket:
                    return
                self._changed.wait(POLL_SECONDS)

    def close(self) -> None:
        """Send all waiting callers away."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
