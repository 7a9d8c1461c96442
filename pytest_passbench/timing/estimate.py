"""Estimates of a ratio from pairs of fresh processes, with Student's interval over the pairs.

A round yields d = log(t_eager / t_candidate). The value of a pair (a fresh process of each arm) is median(d).
The median is robust against bursts within the pair, and no outlying round is ever dropped. The estimate is
exp(weighted mean of the pair values), and its interval is Student's t over pairs. The reason is that a process
has a bias of its own (memory layout, page colours), which no number of rounds removes. Sources: Kalibera and
Jones 2013, "Rigorous benchmarking in reasonable time"; Georges, Buytaert and Eeckhout 2007, "Statistically
rigorous Java performance evaluation".

A pair that was cut short on a noisy machine counts for less than one that had its time (:func:`weights`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median

#: The default two-sided error of an interval that is looked at once.
ALPHA = 0.05
#: A pair's value is precise enough if its standard error (log) is PRECISE_ERROR, or PRECISE_SHARE of its absolute
#: value. Six pairs of that precision tell equal arms from different ones.
PRECISE_ERROR, PRECISE_SHARE = 0.014, 0.1
#: No pair counts less than this. The errors of the looks were simulated down to it
#: (:mod:`pytest_passbench.timing.looks`).
MIN_WEIGHT = 0.25
#: With fewer independent pairs than this the spread is unknown.
MIN_WORTH = 1.5

_TINY = 1e-300


@dataclass(frozen=True)
class Estimate:
    """A ratio of times eager / candidate.

    Everything is kept in natural logarithms, so exchanging the arms only changes the sign. No rounding makes A/B and
    B/A disagree. ``log_ratio`` and ``half_width`` are logs (0.01 is about 1 %). ``half_width`` is infinite if the
    spread is unknown (one pair). ``stderr`` is the standard error of ``log_ratio``, with ``df`` degrees of freedom.
    """

    log_ratio: float
    half_width: float
    stderr: float
    df: float
    pairs: int

    @property
    def ratio(self) -> float:
        """The point estimate; above 1 the candidate is faster."""
        return math.exp(self.log_ratio)

    @property
    def low(self) -> float:
        """The lower end of the interval of the ratio."""
        return math.exp(self.log_ratio - self.half_width)

    @property
    def high(self) -> float:
        """The upper end of the interval of the ratio; infinite if it is too large for a float."""
        end = self.log_ratio + self.half_width
        return math.exp(end) if end < 700 else math.inf


def log_ratio(eager: float, candidate: float) -> float:
    """Return a round's d from two times in the same unit. Raises ValueError if one is not above 0 and finite."""
    if not (eager > 0 and candidate > 0 and math.isfinite(eager) and math.isfinite(candidate)):
        raise ValueError(f"not a ratio of two times: {eager!r} / {candidate!r}")
    return math.log(eager) - math.log(candidate)


def pair_value(rounds: Sequence[float]) -> float:
    """Return the median of a pair's log-ratios. Raises ValueError if there are none, or if one is not finite."""
    if not rounds or not all(math.isfinite(d) for d in rounds):
        raise ValueError(f"a pair needs finite log-ratios, at least one: {list(rounds)!r}")
    return float(median(rounds))


def median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median, infinite for fewer than two values.

    It is taken from the distance of two order statistics, so it assumes no distribution of the values (Price
    and Bonett 2001, J. Stat. Comput. Simul. 68:295).
    """
    ordered, count = sorted(values), len(values)
    if count < 2:
        return math.inf
    rank = max(1, round((count + 1) / 2 - math.sqrt(count)))
    below = sum(math.comb(count, i) for i in range(rank)) / 2**count
    return (ordered[count - rank] - ordered[rank - 1]) / (2 * NormalDist().inv_cdf(1 - below))


def estimate(
    pairs: Sequence[Sequence[float]], alpha: float = ALPHA, *, effective: float | None = None, resolution: float = 0.0
) -> Estimate:
    """Return the ratio and its 1 - ``alpha`` interval from each pair's log-ratios.

    ``effective`` is the number of independent pairs that autocorrelated ones are worth
    (:func:`pytest_passbench.timing.series.effective_size`). ``resolution`` is the smallest half width (log) that the
    clock allows: its step divided by a block's length. It matters if a coarse clock makes all pairs equal, which does
    not mean that they are certain. Raises ValueError if there are no pairs, or as :func:`pair_value` does.
    """
    values = [pair_value(rounds) for rounds in pairs]
    if not values:
        raise ValueError("an estimate needs at least one pair")
    return from_values(values, alpha, counting=weights(pairs), effective=effective, resolution=resolution)


def enough(values: Sequence[float], precise: float | None = None) -> float:
    """Return the standard error (log) with which a pair's value is precise enough, given such ``values``.

    It grows with the distance of their median from 0, and is at least ``precise`` (default :data:`PRECISE_ERROR`).
    """
    return max(PRECISE_ERROR if precise is None else precise, PRECISE_SHARE * abs(median(values)))


def weights(pairs: Sequence[Sequence[float]]) -> list[float]:
    """Return the weight of each pair, at most 1.

    Pairs that are precise enough weigh the same. Others weigh in inverse proportion to their variance, but at least
    :data:`MIN_WEIGHT`. A pair has too few rounds for a variance of its own. So the variance of all pairs' rounds
    together is taken, divided by the pair's number of rounds. Pairs with equally many rounds thus weigh the same.
    """
    precise = enough([pair_value(rounds) for rounds in pairs])
    scatter = median(median_error(rounds) * math.sqrt(len(rounds)) for rounds in pairs)
    if not math.isfinite(scatter):
        return [1.0] * len(pairs)
    errors = [max(precise, scatter / math.sqrt(len(rounds))) for rounds in pairs]
    return [max(MIN_WEIGHT, (min(errors) / error) ** 2) for error in errors]


def from_values(
    values: Sequence[float],
    alpha: float = ALPHA,
    *,
    counting: Sequence[float] | None = None,
    effective: float | None = None,
    resolution: float = 0.0,
) -> Estimate:
    """Return the estimate from pair values, each with its weight ``counting`` (above 0; default: equal weights).

    Values of unequal weights are worth (sum w)^2 / sum w^2 of equal ones (Kish 1965, "Survey Sampling"). The degrees
    of freedom are one less. The variance of the mean is taken from each value's distance to it, not from the weights.
    Sums are exact (``fsum``), so their order does not matter. The other parameters are those of :func:`estimate`.
    """
    count = len(values)
    shares = [1.0] * count if counting is None else counting
    total = math.fsum(shares)
    mean = math.fsum(share * value for share, value in zip(shares, values, strict=True)) / total
    equal = total**2 / math.fsum(share**2 for share in shares)
    worth = equal if effective is None else equal * min(effective / count, 1.0)
    if count < 2 or worth < MIN_WORTH:
        return Estimate(mean, math.inf, math.inf, 0.0, count)
    off = math.fsum((share * (value - mean)) ** 2 for share, value in zip(shares, values, strict=True))
    stderr = math.sqrt(off * equal / (equal - 1) * equal / worth) / total
    half = max(two_sided(alpha, worth - 1) * stderr, resolution)
    return Estimate(mean, half, stderr, worth - 1, count)


@lru_cache(maxsize=1024)
def two_sided(alpha: float, df: float) -> float:
    """Return the t with P(|T| > t) = ``alpha``; infinite for df <= 0, since the spread is then unknown.

    ``df`` may be any real number. P(|T| > t) = I_x(df/2, 1/2) with x = df/(df + t^2). I is the regularised incomplete
    beta function (Abramowitz and Stegun 26.7.1), by its continued fraction (DLMF 8.17.22) with Lentz's method
    (Thompson and Barnett 1986). The quantile is found by bisection, so it is as monotone as the distribution
    function itself.

    Raises ValueError if ``alpha`` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    if df <= 0:
        return math.inf
    high = 1.0
    while _outside(high, df) > alpha:
        high *= 2
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _outside(middle, df) > alpha else (low, middle)
    return (low + high) / 2


def _outside(t: float, df: float) -> float:
    return _incomplete_beta(df / (df + t * t), df / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I_x(a, b). The fraction converges fast for x < (a+1)/(a+b+2); beyond, I_x(a,b) = 1 - I_{1-x}(b,a)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction DLMF 8.17.22 by Lentz's method, without its leading factor."""
    c, d = 1.0, 1.0 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d, c = 1.0 / _away(1 + term * d), _away(1 + term / c)
            step = d * c
            value *= step
        if abs(step - 1) < 1e-15:
            break
    return value


def _away(value: float) -> float:
    """Return ``value``, kept away from 0, since Lentz's method divides by it."""
    return value if abs(value) > _TINY else _TINY
