"""Answers that need less work than the graph: constants, copies of inputs, and answers that leave an input out.

Tensors are compared in pieces that fit into a core's cache. Their errors are computed in wider dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

PIECE_SIZE = 1 << 15  # elements compared at a time
FIRST_SIZE = 1 << 8  # elements of the first piece, which shows nearly every wrong answer
#: Dtypes to compute in, for those in which torch does not compute everything, or not well.
WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), torch.float32),
    torch.complex32: torch.complex64,
}

MIN_ELEMENTS = 1024  # of an input. A smaller one takes hardly any time to read
MAX_INPUTS = 4  # the largest ones are tried
NEAR_ZERO = 0.05  # of an input's mean size: a mean below it is as good as zero
MAX_NAN_SHARE = 0.5  # of an output's elements. Any kernel may skip the work for those that are NaN


def fixed_nulls(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return zeros and copies of inputs in place of an output, as flat tensors. The copies keep their dtypes."""
    zeros = torch.zeros((), dtype=expected.dtype).expand(expected.numel())
    return [zeros, *(value.reshape(-1) for value in inputs if value.shape == expected.shape)]


def mean_answer(expected: torch.Tensor) -> list[torch.Tensor]:
    """Return the mean of an output in place of it, as a flat tensor in a list; nothing if it has no floats.

    Nor if it is one number, such as a loss: its mean is the answer itself, and takes all of the work.
    """
    flat = expected.reshape(-1)
    if not flat.is_floating_point() or flat.numel() < 2:
        return []
    wide = WIDER.get(flat.dtype, flat.dtype)
    mean = math.fsum(float(piece.to(wide).sum()) for piece in flat.split(PIECE_SIZE)) / flat.numel()
    return [torch.tensor(mean, dtype=flat.dtype).expand(flat.shape)]


def inputs_left_out(values: Sequence[torch.Tensor]) -> Iterator[tuple[int, str, list[torch.Tensor]]]:
    """Yield the inputs with one of the large ones replaced, by zeros and by its mean.

    Yield the index of the input that is replaced, what stands for it in words, and all inputs. A mean that is not
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


def pieces(flat: torch.Tensor) -> list[torch.Tensor]:
    """Return a flat tensor in pieces that fit into a core's cache. The first one is small."""
    return [flat[:FIRST_SIZE], *flat[FIRST_SIZE:].split(PIECE_SIZE)] if flat.numel() > FIRST_SIZE else [flat]
