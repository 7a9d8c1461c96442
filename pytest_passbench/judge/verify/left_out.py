"""Answers that leave an input out: are they as accurate as eager's?

A program that never reads an input is fast. It is accurate if the input hardly matters on the recorded values. So
each large input is replaced by zeros, and by its mean, and the graph is asked in float64 for the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_passbench.core.null_answers import inputs_left_out
from pytest_passbench.core.reference import ReferenceOutput
from pytest_passbench.judge.verify.late import LateReference


def accepts_left_out(
    late: LateReference, references: Sequence[ReferenceOutput], values: Sequence[torch.Tensor]
) -> bool:
    """Return True if an answer without one of the large inputs is as accurate as eager's.

    ``references`` are those of the call with these ``values``. It overwrites the first slot of the pages.
    """
    for _, _, changed in inputs_left_out(values):
        answer = late.outputs(changed, always=True)
        if answer is None:
            return False  # the process has ended, so no other question has an answer either
        pairs = zip(references, answer, strict=True)
        if all(reference.accepts(output.value) for reference, output in pairs):
            return True
    return False
