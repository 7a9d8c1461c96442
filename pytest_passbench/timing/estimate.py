"""From rounds to a ratio with an interval: the pair of fresh processes is the unit.

A round yields d = log(t_eager / t_candidate). A pair (a fresh process of each arm) has the value
median(d): robust against bursts within the pair, and no outlying round is ever dropped. The estimate is
exp(weighted mean of the pair values), its interval Student's t over pairs, because a process has a bias of its own
(memory layout, page colours) that no number of rounds removes: Kalibera and Jones 2013, "Rigorous
benchmarking in reasonable time"; Georges, Buytaert and Eeckhout 2007, "Statistically rigorous Java
performance evaluation".

A pair that was cut short on a noisy machine counts for less than one that had its time (:func:`weights`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from pytest_passbench.timing import student

#: The default two-sided error of an interval that is looked at once.
ALPHA = 0.05
#: A pair's value is precise enough with this standard error (log), or with this share of its own distance from 1:
#: six pairs that are no further apart show equal arms to be the same, others to differ.
PRECISE, FAR = 0.014, 0.1
#: No pair counts less than this: what the looks' errors were simulated for (:mod:`pytest_passbench.timing.looks`).
LEAST_WEIGHT = 0.25
#: Below so many pairs' worth the spread says nothing.
LEAST_WORTH = 1.5


@dataclass(frozen=True)
class Estimate:
    """A ratio of times eager / candidate. Everything is kept in natural logarithms, so that swapping the arms
    only changes the sign: no rounding makes A/B and B/A disagree.

    ``log_ratio`` and ``half_width`` are logs (0.01 is about 1 %); ``half_width`` is infinite where the spread
    is unknown (one pair). ``stderr`` is the standard error of ``log_ratio``, with ``df`` degrees of freedom.
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
        """The upper end of the interval of the ratio."""
        end = self.log_ratio + self.half_width
        return math.exp(end) if end < 700 else math.inf

    def swapped(self) -> Estimate:
        """The estimate of candidate / eager."""
        return Estimate(-self.log_ratio, self.half_width, self.stderr, self.df, self.pairs)


def log_ratio(eager: float, candidate: float) -> float:
    """A round's d. Times in any one unit, above zero (ValueError: a block of no time was not timed)."""
    if not (eager > 0 and candidate > 0 and math.isfinite(eager) and math.isfinite(candidate)):
        raise ValueError(f"not a ratio of two times: {eager!r} / {candidate!r}")
    return math.log(eager) - math.log(candidate)


def pair_value(rounds: Sequence[float]) -> float:
    """The median of a pair's log-ratios. ValueError where there are none or one is not finite."""
    if not rounds or not all(math.isfinite(d) for d in rounds):
        raise ValueError(f"a pair needs finite log-ratios, at least one: {list(rounds)!r}")
    return float(median(rounds))


def median_error(values: Sequence[float]) -> float:
    """The standard error of the median, from the distance of two order statistics, so that it needs no law of the
    values: Price and Bonett 2001, J. Stat. Comput. Simul. 68:295. Infinite for fewer than two values."""
    ordered, count = sorted(values), len(values)
    if count < 2:
        return math.inf
    rank = max(1, round((count + 1) / 2 - math.sqrt(count)))
    below = sum(math.comb(count, i) for i in range(rank)) / 2**count
    return (ordered[count - rank] - ordered[rank - 1]) / (2 * NormalDist().inv_cdf(1 - below))


def estimate(
    pairs: Sequence[Sequence[float]],
    alpha: float = ALPHA,
    *,
    effective: float | None = None,
    resolution: float = 0.0,
) -> Estimate:
    """The ratio and its 1 - ``alpha`` interval from each pair's log-ratios.

    ``effective`` is the number of independent pairs that these are worth, where they are autocorrelated
    (:func:`pytest_passbench.timing.series.effective_size`). ``resolution`` is the smallest half width (log)
    that the clock allows: its step divided by a block's length. It matters where a coarse clock makes all
    pairs equal, which is agreement of the clock with itself, not certainty.
    """
    values = [pair_value(rounds) for rounds in pairs]
    if not values:
        raise ValueError("an estimate needs at least one pair")
    return from_values(values, alpha, counting=weights(pairs), effective=effective, resolution=resolution)


def enough(values: Sequence[float], precise: float | None = None) -> float:
    """The standard error (log) with which a pair's value is precise enough, by what these are about; ``precise``
    (default :data:`PRECISE`) where that is 0."""
    return max(PRECISE if precise is None else precise, FAR * abs(median(values)))


def weights(pairs: Sequence[Sequence[float]]) -> list[float]:
    """What each pair counts: the same where its value is precise enough, else in inverse proportion to its variance.

    The variance is that of all pairs' rounds taken together (of so few rounds a pair's own is vague), by the number
    of its rounds; so where all pairs have as many, all count the same. None counts less than :data:`LEAST_WEIGHT`.
    """
    precise = enough([pair_value(rounds) for rounds in pairs])
    scatter = median(median_error(rounds) * math.sqrt(len(rounds)) for rounds in pairs)
    if not math.isfinite(scatter):
        return [1.0] * len(pairs)
    errors = [max(precise, scatter / math.sqrt(len(rounds))) for rounds in pairs]
    return [max(LEAST_WEIGHT, (min(errors) / error) ** 2) for error in errors]


def from_values(
    values: Sequence[float],
    alpha: float = ALPHA,
    *,
    counting: Sequence[float] | None = None,
    effective: float | None = None,
    resolution: float = 0.0,
) -> Estimate:
    """As :func:`estimate`, from pair values, each ``counting`` (above 0) what :func:`weights` says. Sums are exact
    (``fsum``), so their order does not matter.

    Values of unequal weights are worth (sum w)^2 / sum w^2 of equal ones (Kish 1965, "Survey Sampling"), one less
    degrees of freedom; the variance of their mean is taken from how far each is from it, not from the weights.
    """
    count = len(values)
    shares = [1.0] * count if counting is None else counting
    total = math.fsum(shares)
    mean = math.fsum(share * value for share, value in zip(shares, values, strict=True)) / total
    equal = total**2 / math.fsum(share**2 for share in shares)
    worth = equal if effective is None else equal * min(effective / count, 1.0)
    if count < 2 or worth < LEAST_WORTH:
        return Estimate(mean, math.inf, math.inf, 0.0, count)
    off = math.fsum((share * (value - mean)) ** 2 for share, value in zip(shares, values, strict=True))
    stderr = math.sqrt(off * equal / (equal - 1) * equal / worth) / total
    half = max(student.two_sided(alpha, worth - 1) * stderr, resolution)
    return Estimate(mean, half, stderr, worth - 1, count)
