"""The fp64 criterion on error ratios: which answers are as accurate as eager (docs/accuracy.md)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_GREATEST_RATIO = 2.0
"""The most that an answer's greatest error may be of eager's. It is the factor in the tests of FlashAttention."""

MAX_MEAN_RATIO, MAX_MEAN_RATIO_16_BITS = 1.5, 1.25
"""The most that an answer's mean error may be of eager's, and the same for outputs of 16 bits."""

_16_BITS = ("float16", "bfloat16")


def max_mean_ratio(dtype: str) -> float:
    """Return the most that the mean error may be of eager's, by the name of the output's dtype."""
    return MAX_MEAN_RATIO_16_BITS if dtype in _16_BITS else MAX_MEAN_RATIO


def is_accurate(dtypes: Sequence[str], greatest: Sequence[float], mean: Sequence[float]) -> bool:
    """Return True if an answer with these error ratios, one of each per output, is as accurate as eager.

    ``dtypes`` are the outputs' in order. An output without one is judged as float32 is.
    """
    limits = [*map(max_mean_ratio, dtypes), *[MAX_MEAN_RATIO] * (len(mean) - len(dtypes))]
    within = (ratio <= limit for ratio, limit in zip(mean, limits, strict=False))
    return all(ratio <= MAX_GREATEST_RATIO for ratio in greatest) and all(within)


def worst(ratios: Sequence[float], more: Sequence[float]) -> list[float]:
    """Return the larger ratio of each output, over two sets of calls; the one set if the other is empty."""
    if not ratios or not more:
        return list(ratios or more)
    return [max(a, b) for a, b in zip(ratios, more, strict=True)]
