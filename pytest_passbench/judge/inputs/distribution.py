"""What an input's values are drawn from, as its task recorded them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from pytest_passbench.core.task import TensorSpec

MIN_EXTREME = 1e30  # recorded bounds beyond this are masks ("minus infinity"), not values
MIN_DEVIATION = 1e-3  # a standard deviation below this share of the mean is a constant, and gets widened
WIDENED = 0.1
#: Each call draws a scale of the recorded deviation from [1 - NARROWER, 1] and a shift of the mean, in deviations,
#: from [-ASIDE, ASIDE].
NARROWER, ASIDE = 0.25, 0.2
MASKED_SHARE = 64  # of 256 elements of a mask are at its extreme bound
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_INTEGERS = {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1}
#: Dtypes that are drawn in another one and converted, and in which.
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
        """The same, times a positive factor: what had one sign keeps it."""
        return Normal(*(value * factor for value in (self.mean, self.deviation, self.low, self.high)))


@dataclass(frozen=True)
class Integers:
    """Integers from ``first`` on, ``range`` many, each as likely."""

    first: int
    range: int


@dataclass(frozen=True)
class Choice:
    """One of two values, ``chosen`` for ``share`` of 256 elements."""

    chosen: float
    other: float
    share: int


@dataclass(frozen=True)
class Literal:
    """The values that the task gives."""

    values: torch.Tensor


Distribution = Normal | Integers | Choice | Literal


@dataclass(frozen=True)
class Draw:
    """One input: its form and what its values are drawn from."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    of: Distribution

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def torch_dtype(self) -> Any:
        """Its dtype as torch knows it."""
        return getattr(torch, self.dtype)

    @property
    def drawn_as(self) -> Draw:
        """What is drawn before it is converted: another dtype, and of a complex one twice as many values."""
        if isinstance(self.of, Literal) or self.dtype not in DRAWN_AS:
            return self
        shape = (*self.shape, 2) if self.dtype.startswith("complex") else self.shape
        return replace(self, dtype=DRAWN_AS[self.dtype], shape=shape)

    def converted(self, drawn: torch.Tensor) -> torch.Tensor:
        """The values of ``drawn_as`` as this input's own, shaped."""
        if not self.dtype.startswith("complex") or isinstance(self.of, Literal):
            return drawn.to(self.torch_dtype).view(self.shape)
        if isinstance(self.of, Normal):
            drawn[..., 1] -= self.of.mean  # the mean is the real part's
        return torch.view_as_complex(drawn).to(self.torch_dtype)


def distribution(spec: TensorSpec) -> Draw:
    """What to draw an input from."""
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
    """Mean and standard deviation to draw with: the recorded ones, a constant widened, 0 and 1 if unknown."""
    mean = spec.mean if spec.mean is not None and math.isfinite(spec.mean) else 0.0
    recorded = spec.std if spec.std is not None and math.isfinite(spec.std) else 1.0
    least = MIN_DEVIATION * max(abs(mean), MIN_DEVIATION)
    return mean, recorded if recorded > least else max(WIDENED * abs(mean), WIDENED)


def _bounds(spec: TensorSpec) -> tuple[float, float]:
    """The recorded bounds; a bound that is no wider than the record's own constant says nothing."""
    free = (-math.inf, math.inf)
    if spec.min is None or spec.max is None or spec.dtype.startswith("complex"):
        return free
    return (spec.min, spec.max) if spec.max - spec.min > MIN_DEVIATION * max(abs(spec.max), MIN_DEVIATION) else free


def _extreme(spec: TensorSpec) -> bool:
    bounds = [bound for bound in (spec.min, spec.max, spec.mean) if bound is not None]
    return any(not math.isfinite(bound) or abs(bound) > MIN_EXTREME for bound in bounds)


def _mask(spec: TensorSpec) -> Choice:
    """An additive mask: its two recorded bounds, the extreme one for a quarter of the elements."""
    low = spec.min if spec.min is not None else 0.0
    high = spec.max if spec.max is not None else 0.0
    extreme, usual = (low, high) if abs(low) > abs(high) else (high, low)
    return Choice(extreme, usual, MASKED_SHARE)


def _integers(spec: TensorSpec) -> Integers:
    """Within the recorded bounds, as far as the dtype has them."""
    low = int(spec.min) if spec.min is not None else 0
    high = int(spec.max) if spec.max is not None else max(low, 1)
    bits = 8 * _INTEGERS[spec.dtype]
    least, most = (0, (1 << bits) - 1) if spec.dtype in _UNSIGNED else (-1 << bits - 1, (1 << bits - 1) - 1)
    low, high = min(max(low, least), most), min(max(high, least), most)
    return Integers(low, max(high - low, 0) + 1)
