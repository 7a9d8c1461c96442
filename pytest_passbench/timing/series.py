"""Autocorrelation of a series, and the A/A floor: how far apart two measurements of the same program lie.

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
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pytest_passbench.timing.estimate import ALPHA, two_sided

#: One-sided error, and its point of the normal distribution: one false alarm in a hundred series.
_ONE_SIDED, _Z = 0.01, 2.326
#: With fewer sessions, their scatter about the pooled correlation is itself too vague.
ENOUGH_SESSIONS = 8


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
    """Return a lower bound of the lag-1 correlation of many eager-against-eager sessions' pair values, each in order.

    The true value of a pair is 0, so r = mean(x_i x_{i+1}) / mean(x_i^2). Thus it lacks the bias that comes from
    subtracting the mean of a short series. An error that the pairs of a session share counts as correlation, as
    it should. A session that is louder than the median one weighs less, so that a noisy moment does not decide r.
    The bound is one-sided (1 %), from the sessions' scatter about r. The result is 0 if the bound is not above 0, or
    with fewer than :data:`ENOUGH_SESSIONS`.
    """
    usable = [values for values in sessions if len(values) > 1 and any(values)]
    if len(usable) < ENOUGH_SESSIONS:
        return 0.0
    products = [math.fsum(a * b for a, b in pairwise(values)) / (len(values) - 1) for values in usable]
    squares = [math.fsum(x * x for x in values) / len(values) for values in usable]
    usual = median(squares)
    shares = [min(usual / square, 1.0) for square in squares]
    total = math.fsum(share * square for share, square in zip(shares, squares, strict=True))
    r = math.fsum(share * product for share, product in zip(shares, products, strict=True)) / total
    off = math.fsum((share * (a - r * b)) ** 2 for share, a, b in zip(shares, products, squares, strict=True))
    stderr = math.sqrt(off * len(usable) / (len(usable) - 1)) / total
    return min(max(r - two_sided(2 * _ONE_SIDED, len(usable) - 1) * stderr, 0.0), 1.0)


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


@dataclass(frozen=True)
class NoiseFloor:
    """The spread of eager-against-eager ratios on this machine.

    ``width`` is relative: 95 % of such ratios stay within 1/(1 + width) to 1 + width. ``offset`` is the largest
    systematic part (log) that the sessions do not exclude. Averaging over subgraphs does not remove it.
    """

    width: float
    offset: float


def aa_floor(log_ratios: Sequence[float]) -> NoiseFloor:
    """Return the floor from the log-ratios of eager-against-eager sessions, in the order of measurement.

    The true value is known to be 0. So the spread is the root mean square, with n degrees of freedom. The next
    session's ratio lies within t_n * rms: Student's prediction interval with a known mean. Sessions that resemble
    their neighbours count as fewer (:func:`effective_size`). Raises ValueError if there are no sessions.
    """
    if not log_ratios:
        raise ValueError("the A/A floor needs at least one session")
    count = len(log_ratios)
    rms = math.sqrt(math.fsum(value * value for value in log_ratios) / count)
    worth = effective_size(log_ratios)
    quantile = two_sided(ALPHA, worth)
    mean = math.fsum(log_ratios) / count
    return NoiseFloor(math.expm1(quantile * rms), abs(mean) + quantile * rms / math.sqrt(worth))


def unexplained(log_ratios: Sequence[float], stderrs: Sequence[float]) -> float:
    """Return how far apart (relative) such sessions lie by more than their own standard errors explain.

    It is what all processes of an arm share, which no number of pairs shows. The variance of the sessions is the sum
    of that one and of the mean squared standard error; the rest is as in :func:`aa_floor`. 0 if the errors explain
    all, or if no session has one.
    """
    finite = [(value, error) for value, error in zip(log_ratios, stderrs, strict=True) if math.isfinite(error)]
    if not finite:
        return 0.0
    variance = math.fsum(value * value - error * error for value, error in finite) / len(finite)
    worth = effective_size([value for value, _error in finite])
    return math.expm1(two_sided(ALPHA, worth) * math.sqrt(max(variance, 0.0)))
