"""Signals that end a run: each is taken for a Ctrl+C, after which the results so far are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The handlers of a run. They are in place until :meth:`restore`, which also restores that of Ctrl+C."""

    def __init__(self, numbers: Iterable[signal.Signals] = ENDING) -> None:
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        for number in numbers:
            if signal.getsignal(number) is signal.SIG_DFL:  # not if a caller ignores it, or handles it
                self._before[number] = signal.signal(number, _interrupt)
        self._before[signal.SIGINT] = signal.getsignal(signal.SIGINT)

    def ignore(self) -> None:
        """Heed none of the signals any more, nor Ctrl+C, until :meth:`restore`."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Put the former handlers back."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(f"{signal.Signals(number).name} was sent")
