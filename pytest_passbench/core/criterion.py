"""The criteria by which an answer is right: agreement with eager at t (the ladder), accuracy against float64, either.

An answer under any criterion is stated in the ladder's terms: the t from which it is correct, and the t from which a
null answer is. So scores, the null guard and gates have one rule for all criteria.
"""

from __future__ import annotations

from typing import Literal

from pytest_passbench.core.ladder import BITWISE, NEVER, T_MIN, T_STRICT, right_at

Criterion = Literal["ladder", "fp64", "either"]
CRITERIA: tuple[Criterion, ...] = ("ladder", "fp64", "either")


def levels(
    criterion: Criterion, first: int, null_from: int, accurate: bool | None, null_accurate: bool
) -> tuple[int, int]:
    """Return the smallest t at which an answer is correct under a criterion, and the smallest for a null answer.

    ``first`` and ``null_from`` are those of the ladder. ``accurate`` says whether the answer is as accurate as eager;
    it is None if that is not known, and then the ladder decides. Accuracy does not depend on t: an accurate answer
    is correct at every t, one that is not at none. With ``either``, an answer that is not right by its accuracy is
    judged by the ladder.
    """
    if criterion == "ladder" or accurate is None:
        return first, null_from
    correct = BITWISE if first == BITWISE else T_MIN if accurate else NEVER
    null = T_MIN if null_accurate else NEVER
    if criterion == "either" and not right_at(correct, null, T_STRICT):
        return first, null_from
    return correct, null
