"""Input records of a piece: the statistics of a real forward pass, widened where they would let work be skipped.

A layer_norm weight that is all ones, a bias that is all zeros, a mask without a masked element: with such inputs
operators do nothing, and a pass that drops them looks right. The record keeps the real mean, and a real spread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.capture import ValueStats

NEAR_CONSTANT = 1e-3
"""A spread below this share of the mean's size counts as constant."""
SPREAD = 0.1
HUGE = 1e4
"""Masks are filled with numbers below ``-HUGE``; as inputs they are drawn around ``MASK`` instead."""
MASK = (-2.0, 2.0)


def record(name: str, stats: ValueStats, dtype: str, origin: str | None) -> TensorSpec:
    """One input's specification in ``dtype``."""
    return TensorSpec(name, stats.shape, dtype, stats.mean, stats.std, stats.min, stats.max, original_name=origin)


def is_float(spec: TensorSpec) -> bool:
    """Whether the input has a floating-point dtype."""
    return "float" in spec.dtype


def is_degenerate(spec: TensorSpec) -> bool:
    """Whether the values are constant or near it, or not finite, or of a mask's size."""
    if not is_float(spec) or spec.mean is None or spec.std is None:
        return False
    if not (abs(spec.mean) < HUGE and abs(spec.min or 0.0) < HUGE and abs(spec.max or 0.0) < HUGE):
        return True
    return spec.std <= max(NEAR_CONSTANT * abs(spec.mean), 1e-6)


def widen(spec: TensorSpec) -> TensorSpec:
    """``spec`` with a spread that makes every element matter; unchanged where it has one already."""
    if not is_degenerate(spec):
        return spec
    if spec.mean is None or not abs(spec.mean) < HUGE or not abs(spec.min or 0.0) < HUGE:
        return dataclasses.replace(spec, mean=MASK[0], std=MASK[1], min=None, max=None)
    spread = SPREAD * max(abs(spec.mean), 1.0)
    floor = 0.05 * spec.mean if spec.mean > 0 else None
    return dataclasses.replace(spec, std=spread, min=floor, max=None)


def scaled(spec: TensorSpec, factor: float) -> TensorSpec:
    """``spec`` with every float statistic ``factor`` times as large."""
    if factor == 1.0 or not is_float(spec):
        return spec
    known: dict[str, Any] = {name: getattr(spec, name) for name in ("mean", "std", "min", "max")}
    values: dict[str, Any] = {name: None if value is None else value * factor for name, value in known.items()}
    return dataclasses.replace(spec, **values)


def is_weight(spec: TensorSpec) -> bool:
    """Whether the model calls this input a parameter or buffer."""
    return bool(spec.original_name) and "." in str(spec.original_name)


def condition(specs: Sequence[TensorSpec], factor: float = 1.0) -> tuple[tuple[TensorSpec, ...], bool]:
    """The widened inputs, activations scaled by ``factor``, and whether anything differs from the record."""
    made = tuple(s if is_weight(s) else scaled(s, factor) for s in map(widen, specs))
    return made, made != tuple(specs)
