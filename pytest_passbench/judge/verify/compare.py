"""The comparison of outputs with eager's, over the whole ladder of tolerances (docs/scores.md)."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import torch

from pytest_passbench.core.ladder import BITWISE, NEVER, T_FROZEN, T_MIN, tolerances
from pytest_passbench.core.null_answers import FIRST_SIZE, WIDER, fixed_nulls, mean_answer, pieces
from pytest_passbench.core.record import RAN
from pytest_passbench.judge.verify.outputs import Output
from pytest_passbench.protocol import KIND_COUNT, KIND_SCALAR, KIND_TENSOR

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
MARGIN = 1e-6  # greater than any relative error of a comparison in float32


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
    """Return how many elements of all: ``12 of 73,728 elements (0.016 %)``. Only all of them are 100 %."""
    percent = 100 * part / max(whole, 1)
    percentage = f"{percent:.2g}" if percent < 99 else f"{percent if part == whole else min(percent, 99.9):.3g}"
    return f"{part:,} of {whole:,} elements ({percentage} %)"


def _new_nan_or_inf(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    a, b = (value.to(WIDER.get(value.dtype, value.dtype)) for value in (expected, actual))
    return bool((~torch.isfinite(b) & torch.isfinite(a)).any())


def correct_from(expected: torch.Tensor, actual: torch.Tensor) -> int:
    """Return the smallest t in -10..1 at which ``actual`` is close to ``expected`` (same shape and dtype).

    BITWISE for the same bits, NEVER if not even t = 1 will do.
    """
    return BITWISE if same_bytes(expected, actual) else _level(expected.reshape(-1), actual.reshape(-1))


def _level(expected: torch.Tensor, actual: torch.Tensor, enough: int = NEVER) -> int:
    """Return :func:`correct_from` of flat tensors. From ``enough`` on, any level of at least that is returned.

    It works on pieces that fit into a core's cache. Tolerances grow with t, so the level can only rise from piece to
    piece, and a wrong answer is known from its first piece.
    """
    dtype, level = str(expected.dtype).removeprefix("torch."), T_MIN
    if tolerances(dtype, T_FROZEN) == (0.0, 0.0):
        return BITWISE if torch.equal(expected, actual) else NEVER
    for a, b in zip(pieces(expected), pieces(actual), strict=True):
        if level >= enough:
            break
        if surely_within(a, b, *tolerances(dtype, level)):
            continue
        level = _Errors(a, b).level(dtype, level)
    return level


def surely_within(expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> bool:
    """Return True if float32 arithmetic shows that all differences are allowed, by more than its rounding error.

    Return False if it does not show that, or if any value is NaN or infinite. The tensors have elements.
    """
    if expected.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    a, b = expected.float(), actual.float()
    beyond_relative = b.sub(a).abs_().sub_(a.abs(), alpha=rtol * (1 - MARGIN))
    return float(beyond_relative.amax()) < atol * (1 - MARGIN)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two tensors of the same shape and dtype hold the same bytes."""
    a, b = a.contiguous(), b.contiguous()
    return not _libc.memcmp(a.data_ptr(), b.data_ptr(), a.numel() * a.element_size())


class _Errors:
    """The absolute errors and magnitudes of tensors with elements, in at least twice their precision.

    Equal NaN and equal infinities count as no error.
    """

    def __init__(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        wide = torch.complex128 if expected.is_complex() else WIDER.get(expected.dtype, torch.float64)
        a, b = expected.to(wide), actual.to(wide)
        self.error, self.magnitude = (a - b).abs(), a.abs()
        #: The elements without a finite error that are not equal, if there is any.
        self.apart: torch.Tensor | None = None
        if not math.isfinite(float(self.error.amax())):
            self._set_apart(a, b)

    def _set_apart(self, a: torch.Tensor, b: torch.Tensor) -> None:
        finite = torch.isfinite(a) & torch.isfinite(b)
        apart = ~(finite | (a == b) | (torch.isnan(a) & torch.isnan(b)))
        self.apart = apart if bool(apart.any()) else None
        self.error = torch.where(finite, self.error, 0.0)
        self.magnitude = torch.where(finite, self.magnitude, 0.0)

    def level(self, dtype: str, least: int) -> int:
        """Return the smallest t from ``least`` on that allows all errors, or NEVER. Any greater t allows them too."""
        if self.apart is not None:
            return NEVER
        ladder = range(least, T_FROZEN + 1)
        step = bisect_left(ladder, True, key=lambda t: self._within(*tolerances(dtype, t)))
        return ladder[step] if step < len(ladder) else NEVER

    def _within(self, rtol: float, atol: float) -> bool:
        return float((self.error - (atol + rtol * self.magnitude)).amax()) <= 0


def worst_element(expected: torch.Tensor, actual: torch.Tensor, tolerance: int) -> tuple[float, int, int]:
    """Return how far the worst element is outside its tolerance at t = ``tolerance``, and which one it is.

    The first is its error divided by its tolerance, 0 if all elements are within it. The second is its place in the
    flattened tensor, the last the number of elements outside.
    """
    limits = tolerances(str(expected.dtype).removeprefix("torch."), tolerance)
    greatest, place, begin, beyond = 0.0, 0, 0, 0
    for a, b in zip(pieces(expected.reshape(-1)), pieces(actual.reshape(-1)), strict=True):
        if a.numel() and not surely_within(a, b, *limits):
            over = _excess(a, b, *limits)
            beyond += int(over.count_nonzero())
            excess, index = (t.item() for t in over.max(0))
            if excess > greatest:
                greatest, place = excess, begin + int(index)
        begin += a.numel()
    return greatest, place, beyond


def _excess(expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """Return each element's error divided by its tolerance; 0 for elements within it, infinity without an error."""
    errors = _Errors(expected, actual)
    limit = atol + rtol * errors.magnitude
    excess = torch.where(errors.error > limit, errors.error / limit.clamp_min(1e-300), 0.0)
    return excess if errors.apart is None else excess.masked_fill(errors.apart, math.inf)


def null_from(expected: Sequence[Output], inputs: Sequence[torch.Tensor]) -> int:
    """Return the smallest t at which a null answer passes for every output, or NEVER.

    Null answers are zeros, a copy of an input, and eager's mean.
    """
    levels = [_null_level(output.value, inputs) for output in expected if output.value is not None]
    return max(levels, default=NEVER)


def _null_level(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> int:
    if expected.numel() == 0:
        return BITWISE
    flat, level = expected.reshape(-1), NEVER
    nulls = [*fixed_nulls(expected, inputs), *mean_answer(expected)]
    answers = [(_level(flat[:FIRST_SIZE], null[:FIRST_SIZE].to(flat.dtype)), null) for null in nulls]
    for first, answer in sorted(answers, key=itemgetter(0)):
        if first >= level:
            break
        level = min(level, _level(flat, answer.to(flat.dtype), enough=level))
    return level
