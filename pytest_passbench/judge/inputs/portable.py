"""The generator in numpy, for machines without a compiler. It is slower; its values are as fresh.

Every input of every call has a key of its own: SHA-256 of the subgraph's key and the counter. numpy's Philox draws
from it. So knowledge of one call's generator tells nothing about another's.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pytest_passbench.judge.inputs.distribution import ASIDE, NARROWER, Choice, Draw, Integers, Normal

_PIECE_VALUES = 1 << 18  # drawn at a time


class Portable:
    """The generator in numpy. ``why`` says why there is no compiled one."""

    def __init__(self, why: str) -> None:
        self.name = f"Philox, keyed anew by SHA-256 for every input of every call ({why})"

    def writer(self, key: bytes, draws: Sequence[Draw | None]) -> PortableWriter:
        """Return a writer of these inputs."""
        return PortableWriter(key, draws)


class PortableWriter:
    """A writer of one subgraph's inputs."""

    def __init__(self, key: bytes, draws: Sequence[Draw | None]) -> None:
        self._key, self._draws = key, draws

    def block(self, block: int, calls: int, address: int, offsets: Sequence[int], stride: int) -> None:
        """Write the inputs of all calls of a block."""
        for call in range(calls):
            for index, offset in enumerate(offsets):
                self.single(block, call, index, address + call * stride + offset)

    def single(self, block: int, call: int, index: int, address: int) -> None:
        """Write one input of one call."""
        draw = self._draws[index]
        if draw is None or draw.count == 0:
            return
        label = b"".join(number.to_bytes(8, "little") for number in (block, call, index))
        secret = int.from_bytes(hashlib.sha256(self._key + label).digest()[:16], "little")
        rng = np.random.Generator(np.random.Philox(key=secret))
        variation = (1 - NARROWER * rng.random(), ASIDE * (2 * rng.random() - 1))
        for begin in range(0, draw.count, _PIECE_VALUES):
            values = _values(rng, draw, min(_PIECE_VALUES, draw.count - begin), variation)
            size = values.element_size()
            ctypes.memmove(address + begin * size, values.data_ptr(), values.numel() * size)


def _values(rng: np.random.Generator, draw: Draw, count: int, variation: tuple[float, float]) -> torch.Tensor:
    """Return the next ``count`` values. ``variation`` are the call's scale and shift."""
    of, dtype = draw.of, draw.torch_dtype
    if isinstance(of, Normal):
        values = _normal(rng, of, count, variation, np.float64 if draw.dtype == "float64" else np.float32)
    elif isinstance(of, Integers):
        values = _integers(rng, of, count)
    else:
        assert isinstance(of, Choice)
        values = np.where(rng.integers(0, 256, count) < of.share, of.value, of.other)
    return torch.from_numpy(values).to(dtype)


def _normal(rng: np.random.Generator, of: Normal, count: int, variation: tuple[float, float], dtype: Any) -> Any:
    scale, shift = variation
    values = rng.standard_normal(count, dtype=dtype)
    values *= of.deviation * scale
    values += of.mean + of.deviation * shift
    return values if math.isinf(of.low) and math.isinf(of.high) else values.clip(of.low, of.high)


def _integers(rng: np.random.Generator, of: Integers, count: int) -> Any:
    """Return integers as int64. Great values of uint64 have the same bits in it."""
    picked = rng.integers(0, of.range - 1, count, dtype=np.uint64, endpoint=True)
    return (picked + np.uint64(of.first & (1 << 64) - 1)).view(np.int64)
