"""Answers that need less work than the graph: constants, copies of inputs, and answers that leave an input out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

import torch

from pytest_passbench.core.agreement import FIRST_SIZE, PIECE_SIZE, WIDER, level_of
from pytest_passbench.core.ladder import BITWISE, NEVER

MIN_ELEMENTS = 1024  # of an input. A smaller one takes hardly any time to read
MAX_INPUTS = 4  # the largest ones are tried
NEAR_ZERO = 0.05  # of an input's mean size: a mean below it is as good as zero
MAX_NAN_SHARE = 0.5  # of an output's elements. Any kernel may skip the work for those that are NaN


def fixed_nulls(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return zeros and copies of inputs in place of an output, as flat tensors. The copies keep their dtypes."""
    zeros = torch.zeros((), dtype=expected.dtype).expand(expected.numel())
    return [zeros, *(value.reshape(-1) for value in inputs if value.shape == expected.shape)]


def mean_answer(expected: torch.Tensor) -> list[torch.Tensor]:
    """Return a flat tensor of an output's mean, in a list. The list is empty if the output has no floats.

    It is also empty for a single number, such as a loss: its mean is the answer itself, which takes all of the work.
    """
    flat = expected.reshape(-1)
    if not flat.is_floating_point() or flat.numel() < 2:
        return []
    wide = WIDER.get(flat.dtype, flat.dtype)
    mean = math.fsum(float(piece.to(wide).sum()) for piece in flat.split(PIECE_SIZE)) / flat.numel()
    return [torch.tensor(mean, dtype=flat.dtype).expand(flat.shape)]


def inputs_left_out(values: Sequence[torch.Tensor]) -> Iterator[tuple[int, str, list[torch.Tensor]]]:
    """Yield the inputs with one of the large ones replaced, by zeros and by its mean.

    Yield the index of the input that is replaced, words for its replacement, and all inputs. A mean that is not
    finite or hardly differs from zero is left out.
    """
    for index in _large(values):
        for words, stand_in in _stand_ins(values[index]):
            yield index, words, [*values[:index], stand_in, *values[index + 1 :]]


def _large(values: Sequence[torch.Tensor]) -> list[int]:
    """Return the indices of the largest floating-point inputs, the largest first."""
    indices = [i for i, value in enumerate(values) if value.is_floating_point() and value.numel() >= MIN_ELEMENTS]
    return sorted(indices, key=lambda index: -values[index].numel())[:MAX_INPUTS]


def _stand_ins(value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "zeros", torch.zeros_like(value)
    mean, size = float(value.mean(dtype=torch.float64)), float(value.abs().mean(dtype=torch.float64))
    if math.isfinite(mean) and abs(mean) > NEAR_ZERO * size:
        yield "its mean", torch.full_like(value, mean)


def mostly_nan(value: torch.Tensor) -> float | None:
    """Return the share of NaN among a tensor's elements if it is above :data:`MAX_NAN_SHARE`, else None."""
    if not value.numel() or not (value.is_floating_point() or value.is_complex()):
        return None
    if math.isfinite(abs(value.sum(dtype=WIDER.get(value.dtype)).item())):
        return None
    share = float(value.isnan().float().mean())
    return share if share > MAX_NAN_SHARE else None


def null_level(expected: torch.Tensor, nulls: Sequence[torch.Tensor]) -> int:
    """Return the smallest t at which one of these null answers, flat tensors, is close to an output, or NEVER."""
    if expected.numel() == 0:
        return BITWISE
    flat, level = expected.reshape(-1), NEVER
    answers = [(level_of(flat[:FIRST_SIZE], null[:FIRST_SIZE].to(flat.dtype)), null) for null in nulls]
    for first, answer in sorted(answers, key=itemgetter(0)):
        if first >= level:
            break
        level = min(level, level_of(flat, answer.to(flat.dtype), enough=level))
    return level
