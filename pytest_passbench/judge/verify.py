"""Comparing outputs with eager's: the whole ladder of tolerances at once (docs/scores.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..protocol import KIND_COUNT, KIND_SCALAR, KIND_TENSOR
from ..score.ladder import BITWISE, NEVER, tolerances
from .outputs import Output

LOWEST, HIGHEST = -10, 1


@dataclass(frozen=True)
class Worst:
    """The element that misses its tolerance by most: flat index, both values, absolute error, share of the limit."""

    index: tuple[int, ...]
    expected: float
    found: float
    error: float
    excess: float


@dataclass
class Verdict:
    """What comparing one call found. ``correct_from`` per output; ``worst`` of the output that misses most."""

    status: str = "correct"
    message: str = ""
    correct_from: list[int] = field(default_factory=list)
    worst: str = ""
    excess: float = 0.0


def compare(expected: Sequence[Output], found: Sequence[Output], tolerance: int, names: Sequence[str]) -> Verdict:
    """One call's outputs against eager's. ``names`` says what each output is, for the message."""
    verdict = Verdict()
    for name, ours, theirs in zip(names, expected, found, strict=True):
        problem = _different_form(ours, theirs)
        if problem is not None:
            status, message = problem
            return Verdict(status, f"{name}: {message}", [NEVER] * len(expected))
        _compare_output(name, ours, theirs, tolerance, verdict)
    return verdict


def _different_form(ours: Output, theirs: Output) -> tuple[str, str] | None:
    a, b = ours.form, theirs.form
    said = f"eager returns {a.describe()}, the candidate {b.describe()}"
    if b.kind == KIND_COUNT or a.kind != b.kind or a.dtype != b.dtype or a.device != b.device:
        return "type_mismatch", said
    if a.shape != b.shape:
        return "shape_mismatch", said
    return None


def _compare_output(name: str, ours: Output, theirs: Output, tolerance: int, verdict: Verdict) -> None:
    if ours.form.kind == KIND_SCALAR or ours.value is None or theirs.value is None:
        same = ours.form.kind != KIND_TENSOR and ours.address == theirs.address
        verdict.correct_from.append(BITWISE if same else NEVER)
        return
    if _new_nan_or_inf(ours.value, theirs.value):
        verdict.status = "nan_inf"
        verdict.message = verdict.message or f"{name}: NaN or Inf where eager has none"
    verdict.correct_from.append(correct_from(ours.value, theirs.value))
    worst = worst_element(ours.value, theirs.value, tolerance)
    if worst is not None and worst.excess >= verdict.excess:
        verdict.excess = worst.excess
        verdict.worst = (
            f"{name}{list(worst.index)}: expected {worst.expected:.9g}, got {worst.found:.9g} "
            f"(greatest error {worst.error:.3g}, {worst.excess:.3g} times what t = {tolerance} allows)"
        )


def _new_nan_or_inf(expected: torch.Tensor, found: torch.Tensor) -> bool:
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    return bool((~torch.isfinite(found) & torch.isfinite(expected)).any())


def correct_from(expected: torch.Tensor, found: torch.Tensor) -> int:
    """The smallest t in -10..1 at which ``found`` is close to ``expected`` (same shape and dtype).

    BITWISE (-11) for the same bits, NEVER (99) where not even t = 1 will do. Tolerances grow with t, so a binary
    search finds it.
    """
    if _same_bits(expected, found):
        return BITWISE
    dtype = str(expected.dtype).removeprefix("torch.")
    errors = _Errors(expected, found)
    if not errors.comparable or not errors.within(*tolerances(dtype, HIGHEST)):
        return NEVER
    low, high = LOWEST, HIGHEST
    while low < high:
        middle = (low + high) // 2
        if errors.within(*tolerances(dtype, middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64, 1: torch.int8}[a.element_size()]
    return bool(torch.equal(a.contiguous().view(integers), b.contiguous().view(integers)))


class _Errors:
    """Absolute errors and magnitudes in float64; equal NaN and Inf count as no error."""

    def __init__(self, expected: torch.Tensor, found: torch.Tensor) -> None:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        a, b = expected.to(wide), found.to(wide)
        finite = torch.isfinite(a) & torch.isfinite(b)
        same = (a == b) | (torch.isnan(a) & torch.isnan(b))
        self.comparable = bool((finite | same).all())
        self.error = torch.where(finite, (a - b).abs(), 0.0)
        self.magnitude = torch.where(finite, a.abs(), 0.0)

    def within(self, rtol: float, atol: float) -> bool:
        return bool((self.error <= atol + rtol * self.magnitude).all())


def worst_element(expected: torch.Tensor, found: torch.Tensor, tolerance: int) -> Worst | None:
    """The element furthest beyond its tolerance at t = ``tolerance``; None where all are within it."""
    if expected.numel() == 0:
        return None
    rtol, atol = tolerances(str(expected.dtype).removeprefix("torch."), tolerance)
    errors = _Errors(expected, found)
    limit = atol + rtol * errors.magnitude
    excess = torch.where(errors.error > limit, errors.error / limit.clamp_min(1e-300), 0.0)
    finite = torch.isfinite(expected) & ~torch.isfinite(found)
    excess = torch.where(finite, float("inf"), excess)
    index = int(excess.argmax())
    if not excess.flatten()[index] > 0:
        return None
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(index), expected.shape))
    values = [complex(t[where].item()) for t in (expected, found)]
    shown = [abs(v) if expected.is_complex() else v.real for v in values]
    return Worst(where, shown[0], shown[1], float(errors.error[where]), float(excess[where]))


def null_from(expected: Sequence[Output], inputs: Sequence[torch.Tensor]) -> int:
    """The smallest t at which a null answer passes for every output: zeros, a copy of an input, eager's mean."""
    levels = [_null_level(output.value, inputs) for output in expected if output.value is not None]
    return max(levels, default=NEVER)


def _null_level(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> int:
    if expected.numel() == 0:
        return BITWISE
    answers = [torch.zeros_like(expected)]
    answers += [t.to(expected.dtype) for t in inputs if t.shape == expected.shape]
    if expected.is_floating_point():
        answers.append(torch.full_like(expected, expected.double().mean().item()))
    return min(correct_from(expected, answer) for answer in answers)


def greatest_error(reference: Output, found: Output) -> float:
    """The greatest absolute difference from a float64 reference; NaN where the two can't be compared."""
    a, b = reference.value, found.value
    if a is None or b is None or a.shape != b.shape or a.dtype != torch.float64 or a.numel() == 0:
        return float("nan")
    return float((a - b.to(torch.float64)).abs().max())
