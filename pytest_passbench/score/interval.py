"""A ratio with its 95 % interval, and the arithmetic of several. All logarithms are natural."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, log

from pytest_passbench.core.record import Speed

MAX_LOG = 700.0  # exp overflows at 710


@dataclass(frozen=True)
class Interval:
    """A speed-up, another ratio or a score, with its 95 % interval."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of_logs(cls, middle: float, down: float, up: float) -> Interval:
        """Return the interval of a ratio whose logarithm is ``middle``, from half-widths of the logarithm."""
        high = middle + up
        return cls(exp(middle), exp(middle - down), exp(high) if high < MAX_LOG else inf)

    @classmethod
    def of(cls, speed: Speed) -> Interval:
        """Return the interval of a measured ratio."""
        return cls(speed.ratio, speed.low, speed.high)

    def __str__(self) -> str:
        if self.high == inf:  # too few pairs
            return f"{digits(self.ratio)} [no interval]"
        return f"{digits(self.ratio)} [{digits(self.low)}, {digits(self.high)}]"


def digits(value: float) -> str:
    """Return a ratio or a time with three decimals, or fewer if it is large."""
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"


def combined(speeds: Sequence[Speed | Interval], offset: float = 0.0) -> Interval | None:
    """Return the geometric mean of measured ratios with its interval; None if there are none.

    The subgraphs' errors are independent, so half-widths (of the logs) add as root of the sum of squares, over the
    count. All of them may share an error of ``offset`` (log) on this machine, which does not shrink.
    """
    if not speeds:
        return None
    count = len(speeds)
    down = hypot(*(_log(speed.ratio, speed.low) for speed in speeds)) / count + offset
    up = hypot(*(_log(speed.high, speed.ratio) for speed in speeds)) / count + offset
    return Interval.of_logs(sum(log(speed.ratio) for speed in speeds) / count, down, up)


def quotient(now: Speed | Interval, then: Speed | Interval) -> Interval:
    """Return now / then. The half-widths of both logs add as root of the sum of squares."""
    down = hypot(_log(now.ratio, now.low), _log(then.high, then.ratio))
    up = hypot(_log(now.high, now.ratio), _log(then.ratio, then.low))
    return Interval.of_logs(log(now.ratio / then.ratio), down, up)


def _log(high: float, low: float) -> float:
    """Return the logarithm of high / low; infinite for an interval without a lower end, which reaches down to 0."""
    return log(high / low) if low > 0 else inf
