"""Contents of memory that look like an earlier answer, for blocks in which a kernel must not rely on its memory.

Memory full of one value would tell a kernel that it is audited.
"""

from __future__ import annotations

import random
from functools import cache

import torch

POOL_ELEMENTS = 1 << 14
RANDOM_PART = 16  # one element in so many has random bits
MAX_SCALE_EXPONENT = 1.0  # the values' deviation is between 1 / 10 and 10


class Contents:
    """A source of contents that are drawn from a seed: finite numbers of ordinary size, and some random bits."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._drawn = torch.Generator().manual_seed(self._chance.getrandbits(63))
        self._scale = 10 ** self._chance.uniform(-MAX_SCALE_EXPONENT, MAX_SCALE_EXPONENT)
        self._pool = cache(self._pool_of)

    def fill(self, tensor: torch.Tensor) -> None:
        """Fill all memory that a tensor's storage has."""
        pool = self._pool(tensor.dtype).to(tensor.device)
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        start = self._chance.randrange(POOL_ELEMENTS) * tensor.element_size()
        turned = pool.roll(start)
        for begin in range(0, whole.numel(), turned.numel()):
            piece = whole[begin : begin + turned.numel()]
            piece.copy_(turned[: piece.numel()])

    def pattern(self, dtype: torch.dtype) -> bytes:
        """Return contents of :data:`POOL_ELEMENTS` elements of ``dtype``."""
        start = self._chance.randrange(POOL_ELEMENTS) * torch.empty(0, dtype=dtype).element_size()
        return bytes(self._pool(dtype).roll(start).numpy())

    def _pool_of(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype is torch.bool:
            return torch.randint(0, 2, (POOL_ELEMENTS,), generator=self._drawn, dtype=torch.uint8)
        size = torch.empty(0, dtype=dtype).element_size()
        bits = torch.randint(0, 256, (POOL_ELEMENTS, size), generator=self._drawn, dtype=torch.uint8)
        if not dtype.is_floating_point:
            return bits.flatten()
        values = (torch.randn(POOL_ELEMENTS, generator=self._drawn) * self._scale).to(dtype)
        rest = bits.view(dtype).flatten().float()
        places = (torch.arange(POOL_ELEMENTS) % RANDOM_PART == 0) & rest.isfinite()
        raw = values.view(torch.uint8).reshape(POOL_ELEMENTS, size)
        return torch.where(places[:, None], bits, raw).flatten()
