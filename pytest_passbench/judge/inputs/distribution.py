"""The distributions that inputs are drawn from, as their task recorded them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pytest_passbench.core.task import TensorSpec

MIN_EXTREME = 1e30  # greater recorded bounds are those of masks ("minus infinity"), not of values
MIN_DEVIATION = 1e-3  # of the mean. An input with a smaller standard deviation counts as constant, and gets WIDENED
WIDENED = 0.1  # least standard deviation of a widened input, and its share of the mean
#: Each call scales the recorded deviation by a factor from [1 - NARROWER, 1], and shifts the mean by a number of
#: deviations from [-ASIDE, ASIDE].
NARROWER, ASIDE = 0.25, 0.2
MASKED_SHARE = 64  # of 256 elements of a mask that are at its extreme bound
#: Dtypes that are drawn in another dtype and then converted.
DRAWN_AS = {
    "float8_e4m3fn": "float32",
    "float8_e5m2": "float32",
    "complex32": "float32",
    "complex64": "float32",
    "complex128": "float64",
}


@dataclass(frozen=True)
class Normal:
    """Normal values, within bounds."""

    mean: float
    deviation: float
    low: float = -math.inf
    high: float = math.inf

    def scaled(self, factor: float) -> Normal:
        """Return the distribution times a positive factor, so that every value keeps its sign."""
        return Normal(*(value * factor for value in (self.mean, self.deviation, self.low, self.high)))


@dataclass(frozen=True)
class Integers:
    """The ``range`` integers from ``first`` on, all equally likely."""

    first: int
    range: int


@dataclass(frozen=True)
class TwoValues:
    """A choice of two values: ``value`` for ``share`` of 256 elements, ``other`` for the rest."""

    value: float
    other: float
    share: int


@dataclass(frozen=True)
class Literal:
    """Values that the task itself gives."""

    values: torch.Tensor


Distribution = Normal | Integers | TwoValues | Literal


@dataclass(frozen=True)
class Draw:
    """An input: its name, shape and dtype, and the distribution of its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    of: Distribution

    @property
    def count(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def torch_dtype(self) -> Any:
        """Its dtype as a torch.dtype."""
        return getattr(torch, self.dtype)

    @property
    def drawn_as(self) -> Draw:
        """The draw before conversion to a dtype of :data:`DRAWN_AS`. A complex input takes twice as many values."""
        if isinstance(self.of, Literal) or self.dtype not in DRAWN_AS:
            return self
        shape = (*self.shape, 2) if self.dtype.startswith("complex") else self.shape
        return replace(self, dtype=DRAWN_AS[self.dtype], shape=shape)

    def converted(self, drawn: torch.Tensor) -> torch.Tensor:
        """Return values of :attr:`drawn_as` in this input's dtype and shape."""
        if not self.dtype.startswith("complex") or isinstance(self.of, Literal):
            return drawn.to(self.torch_dtype).view(self.shape)
        if isinstance(self.of, Normal):
            drawn[..., 1] -= self.of.mean  # the recorded mean is that of the real part
        return torch.view_as_complex(drawn).to(self.torch_dtype)


def distribution(spec: TensorSpec) -> Draw:
    """Return the draw of an input, from its recorded statistics."""
    return Draw(spec.name, spec.shape, spec.dtype, _of(spec))


def _of(spec: TensorSpec) -> Distribution:
    dtype = getattr(torch, spec.dtype)
    if spec.data is not None:
        return Literal(torch.tensor(spec.data).to(dtype).flatten())
    if dtype == torch.bool:
        return Integers(0, 2)
    if not (dtype.is_floating_point or dtype.is_complex):
        return _integers(spec)
    if _extreme(spec):
        return _mask(spec)
    return Normal(*_moments(spec), *_bounds(spec))


def _moments(spec: TensorSpec) -> tuple[float, float]:
    """Return the recorded mean and standard deviation, or 0 and 1 if unknown. A constant input is widened."""
    mean = spec.mean if spec.mean is not None and math.isfinite(spec.mean) else 0.0
    recorded = spec.std if spec.std is not None and math.isfinite(spec.std) else 1.0
    least = MIN_DEVIATION * max(abs(mean), MIN_DEVIATION)
    return mean, recorded if recorded > least else max(WIDENED * abs(mean), WIDENED)


def _bounds(spec: TensorSpec) -> tuple[float, float]:
    """Return the recorded bounds. A bound that is unknown is infinite, and so are both bounds of a constant input.

    Values beyond a bound are clamped to it, as the published replay does. One bound alone holds too, since it may be
    what keeps a variance positive.
    """
    free = (-math.inf, math.inf)
    if spec.dtype.startswith("complex"):
        return free
    if spec.min is None or spec.max is None:
        return (free[0] if spec.min is None else spec.min), (free[1] if spec.max is None else spec.max)
    return (spec.min, spec.max) if spec.max - spec.min > MIN_DEVIATION * max(abs(spec.max), MIN_DEVIATION) else free


def _extreme(spec: TensorSpec) -> bool:
    bounds = [bound for bound in (spec.min, spec.max, spec.mean) if bound is not None]
    return any(not math.isfinite(bound) or abs(bound) > MIN_EXTREME for bound in bounds)


def _mask(spec: TensorSpec) -> TwoValues:
    """Return the draw of an additive mask: its two recorded bounds, the extreme one for a quarter of the elements."""
    low = spec.min if spec.min is not None else 0.0
    high = spec.max if spec.max is not None else 0.0
    extreme, usual = (low, high) if abs(low) > abs(high) else (high, low)
    return TwoValues(extreme, usual, MASKED_SHARE)


def _integers(spec: TensorSpec) -> Integers:
    """Return integers within the recorded bounds, clipped to the range of the dtype."""
    low = int(spec.min) if spec.min is not None else 0
    high = int(spec.max) if spec.max is not None else max(low, 1)
    bounds = np.iinfo(spec.dtype)
    low, high = (min(max(bound, bounds.min), bounds.max) for bound in (low, high))
    return Integers(low, max(high - low, 0) + 1)
