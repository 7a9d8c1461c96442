"""Figures over many sessions: the geometric mean of many ratios with its interval, and the machine's A/A floor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.timing import student
from pytest_passbench.timing.estimate import ALPHA, Estimate
from pytest_passbench.timing.series import effective_size


@dataclass(frozen=True)
class Floor:
    """The spread of eager-against-eager ratios on this machine.

    ``width`` is relative: 95 % of such ratios stay within 1/(1 + width) to 1 + width. ``offset`` is the largest
    systematic part (log) that the sessions do not exclude. Averaging over subgraphs does not remove it.
    ``sessions`` is the number of sessions that were measured.
    """

    width: float
    offset: float
    sessions: int


def aa_floor(log_ratios: Sequence[float], alpha: float = ALPHA) -> Floor:
    """Return the floor from the log-ratios of eager-against-eager sessions, in the order of measurement.

    The true value is known to be 0. So the spread is the root mean square, with n degrees of freedom. The next
    session's ratio lies within t_n * rms: Student's prediction interval with a known mean. Sessions that
    resemble their neighbours count as fewer (:func:`pytest_passbench.timing.series.effective_size`). Raises
    ValueError if there are no sessions.
    """
    if not log_ratios:
        raise ValueError("the A/A floor needs at least one session")
    count = len(log_ratios)
    rms = math.sqrt(math.fsum(value * value for value in log_ratios) / count)
    worth = effective_size(log_ratios)
    quantile = student.two_sided(alpha, worth)
    mean = math.fsum(log_ratios) / count
    return Floor(math.expm1(quantile * rms), abs(mean) + quantile * rms / math.sqrt(worth), count)


def geometric_mean(estimates: Sequence[Estimate], *, alpha: float = ALPHA, offset: float = 0.0) -> Estimate:
    """Return the geometric mean of the ratios of *these* subgraphs, with the interval that measuring leaves.

    Its logarithm is the mean of the logs, and its variance is the sum of their variances over N^2. The degrees
    of freedom are those of Welch and Satterthwaite: (sum v)^2 / sum(v^2 / df) (Satterthwaite 1946). ``offset``
    (log, from :class:`Floor`) widens the interval by the error that all ratios may have in common. The interval
    is infinite if that of any ratio is. Raises ValueError if there are no estimates.
    """
    if not estimates:
        raise ValueError("a geometric mean needs at least one ratio")
    count = len(estimates)
    mean = math.fsum(item.log_ratio for item in estimates) / count
    if any(not math.isfinite(item.stderr) for item in estimates):
        return Estimate(mean, math.inf, math.inf, 0.0, count)
    variances = [item.stderr**2 for item in estimates]
    total = math.fsum(variances)
    weight = math.fsum(v * v / item.df for v, item in zip(variances, estimates, strict=True))
    df = total * total / weight if weight > 0 else math.fsum(item.df for item in estimates)
    stderr = math.sqrt(total) / count
    return Estimate(mean, student.two_sided(alpha, df) * stderr + offset, stderr, df, count)
