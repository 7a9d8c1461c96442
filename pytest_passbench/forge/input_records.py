"""Input records of a piece: statistics of a real forward pass, widened if they would let a pass skip work.

Examples are a layer_norm weight that is all ones, a bias that is all zeros, and a mask without a masked
element. On such inputs operators do nothing, so a pass that drops them looks right. The record keeps the real
mean, and gets a real spread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pytest_passbench.core.task import TensorSpec

MIN_RELATIVE_SPREAD = 1e-3
"""A spread below this share of the mean's absolute value counts as constant."""
SPREAD = 0.1
FLOOR, FLOOR_SPREADS = 0.05, 2.0
"""An input whose mean is at least FLOOR_SPREADS spreads gets FLOOR times its mean as minimum, as a variance needs.

A smaller mean gets no floor: about half of the values would be clamped to it.
"""
MAX_MAGNITUDE = 1e4
"""A number of this magnitude or more fills a mask. An input with such a mean or minimum gets the statistics MASK."""
MASK = (-2.0, 2.0)  # mean and standard deviation


def is_float(spec: TensorSpec) -> bool:
    """Return True if the input has a floating-point dtype."""
    return "float" in spec.dtype


def is_degenerate(spec: TensorSpec) -> bool:
    """Return True if the values are constant or nearly so, not finite, or as large as a mask's filling."""
    if not is_float(spec) or spec.mean is None or spec.std is None:
        return False
    if not all(abs(number or 0.0) < MAX_MAGNITUDE for number in (spec.mean, spec.min, spec.max)):
        return True
    return spec.std <= max(MIN_RELATIVE_SPREAD * abs(spec.mean), 1e-6)


def widen(spec: TensorSpec) -> TensorSpec:
    """Return ``spec`` with a spread that makes every element matter; unchanged if it has one already."""
    if not is_degenerate(spec):
        return spec
    if spec.mean is None or not abs(spec.mean) < MAX_MAGNITUDE or not abs(spec.min or 0.0) < MAX_MAGNITUDE:
        return dataclasses.replace(spec, mean=MASK[0], std=MASK[1], min=None, max=None)
    spread = SPREAD * max(abs(spec.mean), 1.0)
    floor = FLOOR * spec.mean if spec.mean >= FLOOR_SPREADS * spread else None
    return dataclasses.replace(spec, std=spread, min=floor, max=None)


def scaled(spec: TensorSpec, factor: float) -> TensorSpec:
    """Return ``spec`` with every float statistic ``factor`` times as large."""
    return with_statistics(spec, lambda number: number * factor) if factor != 1.0 and is_float(spec) else spec


def with_statistics(spec: TensorSpec, change: Callable[[float], float]) -> TensorSpec:
    """Return ``spec`` with ``change`` of each of its statistics."""
    statistics = {name: getattr(spec, name) for name in ("mean", "std", "min", "max")}
    changed: dict[str, Any] = {name: change(number) for name, number in statistics.items() if number is not None}
    return dataclasses.replace(spec, **changed)


def condition(specs: Sequence[TensorSpec], factor: float = 1.0) -> tuple[TensorSpec, ...]:
    """Return the widened inputs, activations scaled by ``factor``."""
    # A parameter or buffer of the model has a dot in its name.
    return tuple(s if "." in (s.original_name or "") else scaled(s, factor) for s in map(widen, specs))
