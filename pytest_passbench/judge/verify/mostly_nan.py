"""Eager's outputs that are mostly NaN. They are a fault of the task: any kernel may skip the work there."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_passbench.core.null_answers import mostly_nan
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.verify.outputs import Output


def refuse_mostly_nan(expected: Sequence[Output]) -> None:
    """Raise ArmFailed for eager if one of its outputs is mostly NaN."""
    for index, output in enumerate(expected):
        share = None if output.value is None else mostly_nan(output.value)
        if share is not None:
            message = (
                f"output {index} of eager is NaN in {100 * share:.0f} % of its elements on inputs drawn as recorded; "
                "correct the bounds that the task records (min, max) for its inputs"
            )
            raise ArmFailed(EAGER, ArmFailure("runtime_fail", "verify", message))
