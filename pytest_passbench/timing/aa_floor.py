"""The machine's A/A floor: how far apart two measurements of the same program lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.timing import student
from pytest_passbench.timing.estimate import ALPHA
from pytest_passbench.timing.series import effective_size


@dataclass(frozen=True)
class NoiseFloor:
    """The spread of eager-against-eager ratios on this machine.

    ``width`` is relative: 95 % of such ratios stay within 1/(1 + width) to 1 + width. ``offset`` is the largest
    systematic part (log) that the sessions do not exclude. Averaging over subgraphs does not remove it.
    ``sessions`` is the number of sessions that were measured.
    """

    width: float
    offset: float
    sessions: int


def aa_floor(log_ratios: Sequence[float]) -> NoiseFloor:
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
    quantile = student.two_sided(ALPHA, worth)
    mean = math.fsum(log_ratios) / count
    return NoiseFloor(math.expm1(quantile * rms), abs(mean) + quantile * rms / math.sqrt(worth), count)


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
    return math.expm1(student.two_sided(ALPHA, worth) * math.sqrt(max(variance, 0.0)))
