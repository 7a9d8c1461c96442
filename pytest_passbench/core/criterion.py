"""The criteria for a right answer: agreement with eager at t (the ladder), accuracy against float64, or either.

An answer under any criterion is stated in the ladder's terms: the t from which it is correct, and the t from which a
null answer is. So scores, the null guard and gates have one rule for all criteria.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pytest_passbench.core.ladder import BITWISE, NEVER, T_MIN, T_STRICT, right_at

MAX_GREATEST_RATIO = 2.0
"""The largest allowed ratio of an answer's greatest error to eager's. FlashAttention's tests use this factor."""

MAX_MEAN_RATIO, MAX_MEAN_RATIO_16_BITS = 1.5, 1.25
"""The largest allowed ratio of an answer's mean error to eager's, and the same for outputs of 16 bits."""

_16_BITS = ("float16", "bfloat16")

Criterion = Literal["ladder", "fp64", "either"]
CRITERIA: tuple[Criterion, ...] = ("ladder", "fp64", "either")


def levels(
    criterion: Criterion, first: int, null_from: int, accurate: bool | None, null_accurate: bool
) -> tuple[int, int]:
    """Return the smallest t at which an answer is correct under a criterion, and the smallest for a null answer.

    ``first`` and ``null_from`` are those of the ladder. ``accurate`` says whether the answer is as accurate as eager;
    it is None if that is not known, and then the ladder decides. Accuracy does not depend on t: an accurate answer
    is correct at every t, and an inaccurate one at none, unless it has eager's bits. With ``either``, the ladder
    judges an answer that is not right by its accuracy.
    """
    if criterion == "ladder" or accurate is None:
        return first, null_from
    correct = BITWISE if first == BITWISE else T_MIN if accurate else NEVER
    null = T_MIN if null_accurate else NEVER
    if criterion == "either" and not right_at(correct, null, T_STRICT):
        return first, null_from
    return correct, null


def max_mean_ratio(dtype: str) -> float:
    """Return the largest allowed ratio of the mean error to eager's, by the name of the output's dtype."""
    return MAX_MEAN_RATIO_16_BITS if dtype in _16_BITS else MAX_MEAN_RATIO


def is_accurate(dtypes: Sequence[str], greatest: Sequence[float], mean: Sequence[float]) -> bool:
    """Return True if an answer with these error ratios, one of each per output, is as accurate as eager.

    ``dtypes`` are those of the outputs in order. An output without a dtype is judged as float32 is.
    """
    limits = [*map(max_mean_ratio, dtypes), *[MAX_MEAN_RATIO] * (len(mean) - len(dtypes))]
    within = (ratio <= limit for ratio, limit in zip(mean, limits, strict=False))
    return all(ratio <= MAX_GREATEST_RATIO for ratio in greatest) and all(within)


def worst(ratios: Sequence[float], more: Sequence[float]) -> list[float]:
    """Return the larger ratio of each output, over two sets of calls; the one set if the other is empty."""
    if not ratios or not more:
        return list(ratios or more)
    return [max(a, b) for a, b in zip(ratios, more, strict=True)]
