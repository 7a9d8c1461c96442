"""The comparison of outputs with eager's, over the whole ladder of tolerances (docs/scores.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from pytest_passbench.core.agreement import WIDER, correct_from, worst_element
from pytest_passbench.core.ladder import BITWISE, NEVER, tolerances
from pytest_passbench.core.null_answers import fixed_nulls, mean_answer, null_level
from pytest_passbench.core.record import RAN
from pytest_passbench.judge.verify.outputs import Output
from pytest_passbench.protocol import KIND_COUNT, KIND_SCALAR, KIND_TENSOR


@dataclass
class Comparison:
    """The result of comparing the outputs of a call.

    ``correct_from`` has the smallest t of each output. ``worst`` and ``excess`` are about the output that misses its
    tolerance by most. ``broken``: an output is wrong by so much that no criterion accepts it.
    """

    status: str = RAN
    message: str = ""
    correct_from: list[int] = field(default_factory=list)
    worst: str = ""
    excess: float = 0.0
    broken: bool = False


def compare(
    expected: Sequence[Output], outputs: Sequence[Output], tolerance: int, names: Sequence[str]
) -> Comparison:
    """Compare a call's outputs with eager's at t = ``tolerance``. ``names`` are the outputs' names for messages."""
    verdict = Comparison()
    for name, eager, output in zip(names, expected, outputs, strict=True):
        problem = _different_form(eager, output)
        if problem is not None:
            status, message = problem
            return Comparison(status, f"{name}: {message}", [NEVER] * len(expected))
        _compare_output(name, eager, output, tolerance, verdict)
    return verdict


def _different_form(eager: Output, output: Output) -> tuple[str, str] | None:
    a, b = eager.form, output.form
    if b.kind == KIND_COUNT or a.kind != b.kind or a.dtype != b.dtype or a.device != b.device:
        return "type_mismatch", f"eager returns {a.describe()}, the candidate {b.describe()}"
    if a.shape != b.shape:
        return "shape_mismatch", f"has shape {list(b.shape)}, eager's has {list(a.shape)}"
    if a.steps != b.steps:
        return "type_mismatch", f"has strides {list(b.strides)}, eager's are {list(a.strides)}"
    return None


def _compare_output(name: str, eager: Output, output: Output, tolerance: int, verdict: Comparison) -> None:
    if eager.form.kind == KIND_SCALAR or eager.value is None or output.value is None:
        same = eager.form.kind != KIND_TENSOR and eager.address == output.address
        verdict.correct_from.append(BITWISE if same else NEVER)
        return
    level = correct_from(eager.value, output.value)
    verdict.correct_from.append(level)
    if level == NEVER and _new_nan_or_inf(eager.value, output.value):
        verdict.status = "nan_inf"
        verdict.message = verdict.message or f"{name}: NaN or Inf where eager has none"
    excess, place, count = worst_element(eager.value, output.value, tolerance) if level > tolerance else (0.0, 0, 0)
    if excess and excess >= verdict.excess:
        verdict.excess = excess
        allowed, beyond = f"{excess:.3g} times what t = {tolerance} allows", "beyond it"
        if tolerances(eager.form.dtype, tolerance) == (0.0, 0.0):
            allowed, beyond = "must be equal", "differ"
        where = tuple(map(int, np.unravel_index(place, eager.value.shape)))
        wide = torch.complex128 if eager.value.is_complex() else torch.float64
        a, b = (value[where].to(wide) for value in (eager.value, output.value))
        right, answer = (float(value.abs() if value.is_complex() else value) for value in (a, b))
        verdict.worst = (
            f"{name}{list(where)}: expected {right:.9g}, got {answer:.9g} "
            f"(greatest error {float((b - a).abs()):.3g}, {allowed}; {share(count, eager.value.numel())} {beyond})"
        )


def share(part: int, whole: int) -> str:
    """Return a number of elements in words: ``12 of 73,728 elements (0.016 %)``. Only the whole is given as 100 %."""
    percent = 100 * part / max(whole, 1)
    percentage = f"{percent:.2g}" if percent < 99 else f"{percent if part == whole else min(percent, 99.9):.3g}"
    return f"{part:,} of {whole:,} elements ({percentage} %)"


def _new_nan_or_inf(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    a, b = (value.to(WIDER.get(value.dtype, value.dtype)) for value in (expected, actual))
    return bool((~torch.isfinite(b) & torch.isfinite(a)).any())


def null_from(expected: Sequence[Output], inputs: Sequence[torch.Tensor]) -> int:
    """Return the smallest t at which a null answer passes for every output, or NEVER.

    Null answers are zeros, a copy of an input, and eager's mean.
    """
    values = [output.value for output in expected if output.value is not None]
    levels = (null_level(value, [*fixed_nulls(value, inputs), *mean_answer(value)]) for value in values)
    return max(levels, default=NEVER)
