"""Eager's outputs that are mostly NaN. They are a fault of the task: any kernel may skip the work there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.verify.outputs import Output

MAX_NAN_SHARE = 0.5  # of an output's elements


def refuse_mostly_nan(expected: Sequence[Output]) -> None:
    """Raise ArmFailed for eager if more than :data:`MAX_NAN_SHARE` of one of its outputs is NaN."""
    for index, output in enumerate(expected):
        value = output.value
        if value is None or not value.numel() or not (value.is_floating_point() or value.is_complex()):
            continue
        if math.isfinite(abs(value.sum().item())):
            continue
        share = float(value.isnan().float().mean())
        if share > MAX_NAN_SHARE:
            message = (
                f"output {index} of eager is NaN in {100 * share:.0f} % of its elements on inputs drawn as recorded; "
                "correct the bounds that the task records (min, max) for its inputs"
            )
            raise ArmFailed(EAGER, ArmFailure("runtime_fail", "verify", message))
