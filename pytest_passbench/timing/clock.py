"""The interface of a clock: it times blocks of calls in fresh processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pytest_passbench.timing.rounds import Disturbance


@dataclass(frozen=True)
class Block:
    """A timed block of ``calls`` calls. ``seconds`` is its time less the cost of an empty block."""

    seconds: float
    calls: int
    noise: Disturbance

    @property
    def per_call(self) -> float:
        """Seconds per call."""
        return self.seconds / self.calls

    @property
    def whole_per_call(self) -> float:
        """Seconds per call with nothing taken off."""
        return self.noise.seconds / self.calls


class Clock(Protocol):
    """A way of timing the arms.

    A clock holds at most one process per arm. It holds the machine-wide lock of its core or device. If a runner
    fails, :meth:`block` raises the judge's own error; no time is invented.
    """

    @property
    def resolution(self) -> float:
        """The clock's step in seconds."""

    def fresh(self) -> None:
        """Begin a pair: replace the processes of all arms by new ones, warm them up until they settle, and stop
        them.
        """

    def block(self, arm: str, calls: int) -> Block:
        """Return the time of a block of ``calls`` calls of ``arm``, on inputs that it has not seen.

        The time is taken on the *judge's* side, less the cost of an empty block. Every other arm stays stopped.
        """

    def close(self) -> None:
        """End the processes."""
