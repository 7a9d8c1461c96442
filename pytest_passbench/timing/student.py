"""Quantiles of Student's t without scipy, for any real degrees of freedom.

P(|T| > t) = I_x(df/2, 1/2) with x = df/(df + t^2). I is the regularised incomplete beta function (Abramowitz and
Stegun 26.7.1). It is computed by its continued fraction (DLMF 8.17.22) with Lentz's method (Thompson and Barnett
1986). The quantile is found by bisection, so it is as monotone as the distribution function itself.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300


@lru_cache(maxsize=1024)
def two_sided(alpha: float, df: float) -> float:
    """Return the t with P(|T| > t) = ``alpha``; infinite for df <= 0, since the spread is then unknown.

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
