"""Answers that leave an input out: are they as accurate as eager's?

A program that never reads an input is fast. It is accurate if the input hardly matters on the recorded values. So
each large input is replaced by zeros, and by its mean, and the graph is asked in float64 for the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from pytest_passbench.judge.verify.accuracy import Reference
from pytest_passbench.judge.verify.late import LateReference

MIN_ELEMENTS = 1024  # of an input. A smaller one takes hardly any time to read
MAX_INPUTS = 4  # the largest ones are tried


def accepts_left_out(late: LateReference, references: Sequence[Reference], values: Sequence[torch.Tensor]) -> bool:
    """Return True if an answer without one of the large inputs is as accurate as eager's.

    ``references`` are those of the call with these ``values``. It overwrites the first slot of the pages.
    """
    for index in large(values):
        for stand_in in stand_ins(values[index]):
            answer = late.outputs([*values[:index], stand_in, *values[index + 1 :]], always=True)
            if answer is None:
                return False  # the process has ended, so no other question has an answer either
            pairs = zip(references, answer, strict=True)
            if all(reference.accepts(output.value) for reference, output in pairs):
                return True
    return False


def large(values: Sequence[torch.Tensor]) -> list[int]:
    """Return the indices of the largest floating-point inputs, the largest first."""
    indices = [i for i, value in enumerate(values) if value.is_floating_point() and value.numel() >= MIN_ELEMENTS]
    return sorted(indices, key=lambda index: -values[index].numel())[:MAX_INPUTS]


def stand_ins(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield zeros, and the mean of the input, in place of it. A mean that is not finite is left out."""
    yield torch.zeros_like(value)
    mean = value.double().mean()
    if bool(mean.isfinite()):
        yield torch.full_like(value, float(mean))
