"""Inputs outside the range that a task recorded: larger, smaller, zero, denormal, huge, or with a few special values.

A value keeps its sign, so an input that is never negative (a variance) stays so. Integers, masks and literal values
stay as they are, since indices must be valid.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pytest_passbench.judge.inputs.distribution import Draw, Normal

LARGER, SMALLER = 30.0, 1e-3  # factors of the recorded mean and deviation
MAX_DEVIATIONS = 4.4  # from the mean to the furthest value that is drawn
#: The greatest magnitude of inputs. Squares of float16 inputs must not overflow, since eager may compute in float16.
MAX_MAGNITUDE, MAX_MAGNITUDE_HALF = 4e4, 100.0
#: Inputs of at least so many elements, and of these so many of the largest, are also made larger one at a time, while
#: the others stay as recorded: by this factor, or until they reach this magnitude, whichever is more. A program that
#: leaves one of them out is then wrong. Larger factors would let rounding decide after an exponential.
MIN_ALONE_ELEMENTS, MAX_ALONE, ALONE, ALONE_MAGNITUDE = 1024, 4, 4.0, 8.0
MAX_SPECIAL = 3  # inputs that get infinities, one at a time: all at once would leave no finite output
#: The number of large values that an input gets, the least bound of their magnitudes (in deviations, and at all), and
#: the least share of it that one has. So few are rarely in a sample by which a program could tell the range or mean.
OUTLIERS, OUTLIER_DEVIATIONS, OUTLIER_MAGNITUDE, LEAST_OUTLIER = 4, 20.0, 8.0, 0.4
FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True)
class Range:
    """A range of inputs outside the recorded one.

    ``name`` names it in messages, and ``changed`` gives an input's distribution in it, from its recorded one and its
    dtype. In ``doubtful`` ranges rounding may decide much: if an answer is wrong, eager is also called on nearby
    inputs. ``index`` is that of the only changed input, if any; ``altered`` makes a copy of it with special values.
    """

    name: str
    changed: Callable[[Normal, str], Normal]
    doubtful: bool = False
    index: int | None = None
    altered: Callable[[torch.Tensor, random.Random], torch.Tensor] | None = None


def ranges(draws: Sequence[Draw]) -> list[Range]:
    """Return all ranges for a subgraph's inputs; an empty list if no input is :func:`movable`."""
    movables = [index for index, draw in enumerate(draws) if movable(draw)]
    if not movables:
        return []
    largest = sorted(movables, key=lambda index: -draws[index].count)[:MAX_SPECIAL]
    return [
        Range("for inputs far larger than recorded", _larger, doubtful=True),
        Range("for inputs a thousand times smaller than recorded", lambda of, _dtype: of.scaled(SMALLER)),
        Range("for inputs that are all zero", lambda _of, _dtype: Normal(0.0, 0.0)),
        Range("for denormal inputs", _denormal),
        Range("for huge inputs", lambda of, dtype: of.scaled(_farthest(dtype) / _peak(of)), doubtful=True),
        *(Range(f"for inputs with infinities and NaN in {draws[i].name}", lambda of, _: of, False, i, with_infinities)
          for i in largest),
        *(Range(f"for inputs with a few large values in {draws[i].name}", lambda of, _: of, True, i, with_outliers)
          for i in largest),
        *_alone(draws, movables),
    ]  # fmt: skip


def _alone(draws: Sequence[Draw], movables: Sequence[int]) -> list[Range]:
    """Return a range for each of the largest inputs, in which it alone is larger than recorded."""
    if len(draws) == 1:
        return []  # it is made larger with all others
    large = [index for index in movables if draws[index].count >= MIN_ALONE_ELEMENTS]
    largest = sorted(large, key=lambda index: -draws[index].count)[:MAX_ALONE]
    return [Range(f"for a larger {draws[i].name} alone", _larger_alone, doubtful=True, index=i) for i in largest]


def changed(draw: Draw, beyond: Range, index: int) -> Draw:
    """Return the draw of input ``index`` in the range ``beyond``. An input that is not movable keeps its draw."""
    if not movable(draw) or not isinstance(draw.of, Normal) or beyond.index not in (None, index):
        return draw
    return Draw(draw.name, draw.shape, draw.dtype, beyond.changed(draw.of, draw.dtype))


def movable(draw: Draw) -> bool:
    """Return True if an input's values may lie outside the recorded range."""
    return isinstance(draw.of, Normal) and draw.dtype in FLOATS and draw.count > 0


def other_last_bits(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return the values with the last bits of half of them flipped, by chance: the nearest other values."""
    bits = value.contiguous().flatten().view(torch.uint8).numpy().view(f"u{value.element_size()}")
    flips = np.random.default_rng(rng.getrandbits(64)).integers(0, 2, bits.shape, np.uint8)
    return torch.from_numpy((bits ^ flips).view(np.uint8)).view(value.dtype).view(value.shape)


def with_infinities(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a copy of the values with two infinities and a NaN in random places, with the signs found there."""
    flat = value.flatten().clone()
    for number in (float("inf"), float("inf"), float("nan")):
        place = rng.randrange(flat.numel())
        flat[place] = torch.copysign(torch.tensor(number), flat[place].float())
    return flat.view(value.shape)


def with_outliers(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a copy of the values with a few large ones in random places, with the signs found there.

    At their largest they weigh as much as all others in a sum of squares, if the greatest magnitude permits that.
    They differ, so that a sample of the elements rarely has its share of them.
    """
    flat = value.flatten().clone()
    deviation = float(flat.float().square().mean().sqrt())
    count = min(OUTLIERS, flat.numel())
    weighty = deviation * max(OUTLIER_DEVIATIONS, math.sqrt(flat.numel() / count))
    large = min(max(weighty, OUTLIER_MAGNITUDE), _farthest(str(flat.dtype).removeprefix("torch.")))
    for place in rng.sample(range(flat.numel()), count):
        flat[place] = torch.copysign(torch.tensor(large * rng.uniform(LEAST_OUTLIER, 1)), flat[place].float())
    return flat.view(value.shape)


def _denormal(of: Normal, dtype: str) -> Normal:
    return of.scaled(torch.finfo(getattr(torch, dtype)).tiny / 8 / _peak(of))


def _larger(of: Normal, dtype: str) -> Normal:
    return of.scaled(max(1.0, min(LARGER, _farthest(dtype) / _peak(of))))


def _larger_alone(of: Normal, dtype: str) -> Normal:
    factor = max(ALONE, ALONE_MAGNITUDE / _peak(of))
    return of.scaled(max(1.0, min(factor, _farthest(dtype) / _peak(of))))


def _peak(of: Normal) -> float:
    """Return about the greatest magnitude of its values."""
    return max(abs(of.mean) + MAX_DEVIATIONS * of.deviation, 1e-30)


def _farthest(dtype: str) -> float:
    return MAX_MAGNITUDE_HALF if dtype == "float16" else MAX_MAGNITUDE
