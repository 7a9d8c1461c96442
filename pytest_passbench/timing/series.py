"""Autocorrelation of a series, and the number of independent values that it is worth.

r1 = sum (x_i - m)(x_{i+1} - m) / sum (x_i - m)^2 (Box and Jenkins). For independent values it is about normal,
with mean -1/n and standard deviation 1/sqrt(n) (Bartlett 1946). Values of a first-order autoregressive series
are worth n (1 - r)/(1 + r) independent ones (Bayley and Hammersley 1946).

Six pairs cannot show that they are correlated. In simulation, a check of each subgraph alone leaves the
coverage at 0.86 for r = 0.5. The correlation comes from the machine. So :func:`pooled_lag1` takes all
eager-against-eager sessions of a run together. Their true value is known, which short series need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

#: One-sided 1 % point of the normal distribution: one false alarm in a hundred series.
_Z = 2.326


def lag1(values: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation, corrected by 1/n for its bias; 0 for constant or fewer than three values."""
    count = len(values)
    if count < 3:
        return 0.0
    mean = math.fsum(values) / count
    off = [value - mean for value in values]
    total = math.fsum(x * x for x in off)
    if total == 0:
        return 0.0
    return math.fsum(a * b for a, b in pairwise(off)) / total + 1 / count


def pooled_lag1(sessions: Iterable[Sequence[float]]) -> float:
    """Return the lag-1 autocorrelation of the pair values of many eager-against-eager sessions, each in order.

    Their true value is 0, so r = mean(x_i x_{i+1}) / mean(x_i^2). Thus it lacks the bias that comes from
    subtracting the mean of a short series. An error that the pairs of a session share counts as correlation, as
    it should. The result is 0 if it is within chance (1 %, one-sided).
    """
    usable = [values for values in sessions if len(values) > 1]
    squares = math.fsum(x * x for values in usable for x in values)
    if squares == 0:
        return 0.0
    steps = sum(len(values) - 1 for values in usable)
    products = math.fsum(a * b for values in usable for a, b in pairwise(values))
    r = (products / steps) / (squares / sum(map(len, usable)))
    return min(r, 1.0) if r > _Z / math.sqrt(steps) else 0.0


def correlated(values: Sequence[float]) -> bool:
    """Return True if neighbours resemble each other more than by chance (1 %, one-sided)."""
    return lag1(values) > _Z / math.sqrt(max(len(values), 1))


def effective_size(values: Sequence[float]) -> float:
    """Return the number of independent values that these are worth: n, unless neighbours are correlated."""
    return independent(len(values), lag1(values) if correlated(values) else 0.0)


def independent(count: int, r: float) -> float:
    """Return the number of independent values that ``count`` values of lag-1 correlation ``r`` are worth.

    It is n (1 - r)/(1 + r), but at least 2, so that an interval exists. Negative correlation counts as 0.
    """
    r = min(max(r, 0.0), 0.99)
    return min(float(count), max(2.0, count * (1 - r) / (1 + r)))
