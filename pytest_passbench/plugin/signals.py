"""Signals that end a run: each acts like Ctrl+C, after which the results so far are written."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)
IMPATIENCE_SECONDS = 10.0  # during which a second signal changes nothing: the first one is being dealt with


class Signals:
    """The handlers of a run, also that of Ctrl+C. They are in place until :meth:`restore`."""

    def __init__(self, numbers: Iterable[signal.Signals] = ENDING) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._first = float("-inf")
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        self._before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
        if self._before[signal.SIGINT] is signal.default_int_handler:  # not if a caller ignores it, or handles it
            signal.signal(signal.SIGINT, self._interrupt)
        for number in numbers:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._before[number] = signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, but not again before pytest has come to dealing with the first one.

        A second one in the meantime would end pytest without results. Later it counts: the first may have got lost.
        """
        now = time.monotonic()
        if now - self._first >= IMPATIENCE_SECONDS:
            self._first = now
            raise KeyboardInterrupt(f"{signal.Signals(number).name} was sent")

    def ignore(self) -> None:
        """Ignore the signals until :meth:`restore`."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Put the former handlers back."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)
