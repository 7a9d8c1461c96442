"""The errors of outputs against float64, as ratios to eager's errors (docs/accuracy.md).

With r an output in float64, c the candidate's, e eager's, and n the number of elements:

    greatest ratio = max|c - r| / (max|e - r| + U / 2)
    mean ratio = mean|c - r| / (mean|e - r| + U / (F sqrt n))       F: the limit of the mean ratio

U is the rounding unit of the largest |r| at which eager is not exact. Its terms allow for an eager output that is
nearly exact by luck. The more elements there are, the less the mean depends on luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.agreement import WIDER, pieces
from pytest_passbench.core.criterion import MAX_GREATEST_RATIO, is_accurate, max_mean_ratio
from pytest_passbench.core.null_answers import fixed_nulls, mean_answer

_ROUNDED = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
_BEYOND_UNIT = 2.0**40  # any nonzero error of eager's, times this, exceeds the element's rounding unit


@dataclass(frozen=True)
class OutputErrors:
    """The greatest error of an output, and the ratios of its greatest and its mean error to eager's.

    ``within`` is True if both ratios are within their limits.
    """

    greatest: float
    greatest_ratio: float
    mean_ratio: float
    within: bool


RIGHT, WRONG = OutputErrors(0.0, 0.0, 0.0, True), OutputErrors(math.inf, math.inf, math.inf, False)


class ReferenceOutput:
    """An output in float64 beside eager's, by which the errors of other programs are judged.

    ``greatest`` is eager's greatest error. ``comparable`` is False if the graph has no float64 form of this output.
    """

    def __init__(self, reference: torch.Tensor | None, eager: torch.Tensor | None) -> None:
        """Take an output in float64, and eager's. Either is None if it is no tensor."""
        self._reference, self._eager = reference, eager
        self._exact = self._eager is None or not (self._eager.is_floating_point() or self._eager.is_complex())
        self.comparable = self._exact or self._has_float64()
        self.greatest = self._mean = self._unit = 0.0
        if self.comparable and not self._exact:
            self._measure_eager()

    def _has_float64(self) -> bool:
        reference, eager = self._reference, self._eager
        if reference is None or eager is None or eager.dtype not in _ROUNDED:
            return False
        wide = torch.complex128 if eager.is_complex() else torch.float64
        return bool(reference.shape == eager.shape and reference.dtype == wide)

    def _measure_eager(self) -> None:
        assert self._eager is not None
        limits, total = torch.finfo(self._eager.dtype), 0.0
        least = limits.smallest_normal * limits.eps
        for exact, eager, _ in self._pieces(self._eager):
            errors, sum_, plain = _errors(exact, eager, eager)
            size = exact.abs()
            if not plain:
                fits = torch.isfinite(exact.to(eager.dtype))
                size = torch.where(fits, size, 0.0)
                # If eager overflows in an intermediate result, its error counts as half a rounding unit there.
                errors = torch.where(fits & ~torch.isfinite(eager), (size * limits.eps).clamp_min(least) / 2, errors)
                sum_ = float(errors.sum())
            total += sum_
            self.greatest = max(self.greatest, float(errors.amax()))
            if max(least, float(size.amax()) * limits.eps) > self._unit:
                unit = size.mul_(limits.eps).clamp_min_(least)
                self._unit = max(self._unit, float(torch.minimum(unit, errors.mul_(_BEYOND_UNIT)).amax()))
        self._mean = total / max(1, self._eager.numel())

    def _pieces(self, answer: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield pieces with elements of the reference, of eager's output and of another's, as flat tensors."""
        assert self._reference is not None
        assert self._eager is not None
        parts = (pieces(value.reshape(-1)) for value in (self._reference, self._eager, answer))
        yield from (piece for piece in zip(*parts, strict=True) if piece[0].numel())

    def errors(self, answer: torch.Tensor | None) -> OutputErrors:
        """Return the errors of another program's output, which has the form of eager's or is None."""
        if answer is None or self._eager is None:
            return RIGHT if answer is self._eager else WRONG
        if self._exact:
            return RIGHT if self._equals(answer) else WRONG
        greatest = total = 0.0
        for exact, eager, other in self._pieces(answer):
            errors, sum_, _ = _errors(exact, other, eager)
            total += sum_
            greatest = max(greatest, float(errors.amax()))
        count = max(1, answer.numel())
        dtype = str(self._eager.dtype).removeprefix("torch.")
        least = self._mean + self._unit / (max_mean_ratio(dtype) * math.sqrt(count))
        ratios = _ratio(greatest, self._least_greatest), _ratio(total / count, least)
        return OutputErrors(greatest, *ratios, is_accurate([dtype], ratios[:1], ratios[1:]))

    @property
    def _least_greatest(self) -> float:
        return self.greatest + self._unit / MAX_GREATEST_RATIO

    def _equals(self, answer: torch.Tensor) -> bool:
        """Return True if each element is eager's or the reference's: at a tie, these may be different indices."""
        assert self._eager is not None
        same = answer == self._eager
        if self._reference is not None and self._reference.shape == answer.shape:
            same |= self._reference == answer
        return bool(same.all())

    def surely_wrong(self, answer: torch.Tensor) -> bool:
        """Return True if the first elements show that an output is not as accurate as eager's."""
        if self._exact:
            return not self._equals(answer)
        exact, eager, other = next(self._pieces(answer), (None, None, None))
        if exact is None or eager is None or other is None:
            return False
        return _ratio(float(_errors(exact, other, eager)[0].amax()), self._least_greatest) > MAX_GREATEST_RATIO

    def _no_constant(self) -> bool:
        """Return True if the first elements differ by so much that no constant is as accurate as eager's output."""
        first = next(self._pieces(self._eager), None) if self._eager is not None and not self._exact else None
        if first is None or first[0].is_complex():
            return False
        low, high = map(float, torch.aminmax(first[0]))
        return (high - low) / 2 > MAX_GREATEST_RATIO * self._least_greatest

    def accepts_null(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return True if a null answer (zeros, a copy of an input, eager's mean) is as accurate as eager's output."""
        if self._eager is None:
            return False
        answers = fixed_nulls(self._eager, inputs)
        if not self._no_constant():
            answers += mean_answer(self._eager)
        return any(map(self.accepts, answers))

    def accepts(self, answer: torch.Tensor | None) -> bool:
        """Return True if an answer, rounded to eager's dtype, is as accurate as eager's output."""
        if answer is None or self._eager is None:
            return answer is self._eager
        if answer.numel() != self._eager.numel():
            return False
        rounded = answer.to(self._eager.dtype).reshape(self._eager.shape)
        return not self.surely_wrong(rounded) and self.errors(rounded).within


def _errors(exact: torch.Tensor, answer: torch.Tensor, eager: torch.Tensor) -> tuple[torch.Tensor, float, bool]:
    """Return the absolute errors of flat tensors in float64, their sum, and True if all values are finite.

    An infinity or NaN is no error if the rounded reference or eager has the same value. Where the rounded reference
    is not finite, eager's value is right as well. Any other infinity or NaN is an infinite error.
    """
    # Half precision goes to float64 by way of float32, which is faster.
    errors = answer.to(WIDER.get(answer.dtype, answer.dtype)).to(exact.dtype).sub_(exact).abs()
    total = float(errors.sum())
    if math.isfinite(total):
        return errors, total, True
    rounded = exact.to(eager.dtype)
    odd = ~torch.isfinite(rounded)
    settled = (odd & _same(answer, rounded)) | ((odd | ~torch.isfinite(eager)) & _same(answer, eager))
    errors = torch.where(settled, 0.0, torch.where(torch.isnan(errors), math.inf, errors))
    return errors, float(errors.sum()), False


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (torch.isnan(a) & torch.isnan(b))


def _ratio(error: float, other: float) -> float:
    if error == 0.0:
        return 0.0
    return error / other if other else math.inf


def references(
    exact: Sequence[torch.Tensor | None], eager: Sequence[torch.Tensor | None]
) -> list[ReferenceOutput] | None:
    """Return a call's outputs in float64 beside eager's; None if the graph has no float64 form of all of them."""
    items = [ReferenceOutput(a, b) for a, b in zip(exact, eager, strict=True)]
    return items if all(item.comparable for item in items) else None
