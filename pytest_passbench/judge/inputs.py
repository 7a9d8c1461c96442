"""The inputs of every call: secret, different in every call of a block, new in every block.

Drawing values anew costs about 4 ns an element, copying them a tenth of it. So a judge-private reservoir of normal
and uniform values is drawn once per session, pools (one per input and variant of its distribution) are cut from it
per subgraph, and a call's input is a window of a pool at a secret offset.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from ..suite.model import TensorSpec
from .pages import Pages

RESERVOIR = 1 << 24  # values of each kind; a prime number less is used, so that windows never repeat in step
SLACK = 1 << 15  # elements of a pool beyond one input: how many windows there are
EXTREME = 1e30  # recorded bounds beyond this are masks ("minus infinity"), not values
NARROW = 1e-3  # a standard deviation below this share of the mean is a constant, and gets widened
WIDTH = 0.1
VARIANTS = ((1.0, 0.0), (0.75, 0.2))  # scale of the recorded deviation, shift of the mean in deviations
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


class Reservoir:
    """Normal and uniform float32 values that only the judge knows."""

    def __init__(self, rng: random.Random, size: int = RESERVOIR) -> None:
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        self.normal = torch.empty(size - 3).normal_(generator=generator)
        self.uniform = torch.empty(size // 4 - 5).uniform_(generator=generator)

    def window(self, kind: str, count: int, rng: random.Random) -> torch.Tensor:
        """``count`` values (float32, flat) from a random place on; beyond the end it goes on at the beginning."""
        values = self.normal if kind == "normal" else self.uniform
        start = rng.randrange(values.numel())
        parts, left = [], count
        while left > 0:
            part = values[start : start + left]
            parts.append(part)
            left -= part.numel()
            start = 0
        return torch.cat(parts) if len(parts) > 1 else parts[0]


class Window(NamedTuple):
    """Where an input of one call comes from: the pool's variant, and the offset in elements."""

    variant: int
    offset: int


class Batch:
    """The inputs of a block of ``calls`` calls: per input a variant, and an offset for each call. As a sequence: per
    call, per input, its window."""

    __slots__ = ("calls", "offsets", "variants")

    def __init__(self, calls: int = 0, variants: Sequence[int] = (), offsets: Sequence[Sequence[int]] = ()) -> None:
        self.calls, self.variants, self.offsets = calls, variants, offsets

    def __len__(self) -> int:
        return self.calls

    def __iter__(self) -> Iterator[list[Window]]:
        return map(self.__getitem__, range(self.calls))

    def __getitem__(self, call: int) -> list[Window]:
        return [Window(variant, places[call]) for variant, places in zip(self.variants, self.offsets, strict=True)]


class Inputs:
    """The pools of one subgraph's inputs and the batches drawn from them."""

    def __init__(self, specs: Sequence[TensorSpec], reservoir: Reservoir, rng: random.Random) -> None:
        self._specs, self._rng = tuple(specs), rng
        self._pools = [_pools(spec, reservoir, rng) for spec in specs]
        self._counts = [math.prod(spec.shape) for spec in specs]
        self._addresses = [[pool.data_ptr() for pool in pools] for pools in self._pools]
        self._sizes = [pools[0].element_size() for pools in self._pools]

    def draw(self, calls: int) -> Batch:
        """Fresh windows for a block; all calls of a block share each input's variant."""
        variants = [self._rng.randrange(len(pools)) for pools in self._pools]
        starts = [self._pools[i][v].numel() - self._counts[i] + 1 for i, v in enumerate(variants)]
        draw, block = self._rng.random, range(calls)
        return Batch(calls, variants, [[int(draw() * count) for _ in block] for count in starts])

    def write(self, batch: Batch, pages: Pages) -> None:
        """Put the inputs of a block into the pages, one slot a call.

        Plain copies of bytes: a torch call for each would take longer than most of the copies.
        """
        copy = ctypes.memmove
        for index, (variant, offsets) in enumerate(zip(batch.variants, batch.offsets, strict=True)):
            size, pool = self._sizes[index], self._addresses[index][variant]
            nbytes = self._counts[index] * size
            if nbytes:
                for slot, offset in zip(pages.addresses[index], offsets, strict=False):
                    copy(slot, pool + offset * size, nbytes)

    def _values(self, index: int, window: Window) -> torch.Tensor:
        return self._pools[index][window.variant][window.offset : window.offset + self._counts[index]]

    def name(self, index: int) -> str:
        """An input's name."""
        return self._specs[index].name

    def values(self, index: int, window: Window) -> torch.Tensor:
        """An input's value, shaped."""
        return self._values(index, window).view(self._specs[index].shape)


def _pools(spec: TensorSpec, reservoir: Reservoir, rng: random.Random) -> list[torch.Tensor]:
    """An input's pools, flat, contiguous, in its own dtype."""
    dtype = getattr(torch, spec.dtype)
    if spec.data is not None:
        return [torch.tensor(spec.data).to(dtype).flatten()]
    count = math.prod(spec.shape) + SLACK
    if dtype == torch.bool:
        return [reservoir.window("uniform", count, rng) < 0.5]
    if dtype.is_floating_point or dtype.is_complex:
        return [_floats(spec, reservoir, rng, count, variant).to(dtype) for variant in VARIANTS]
    return [_integers(spec, reservoir, rng, count).to(dtype)]


def _floats(
    spec: TensorSpec, reservoir: Reservoir, rng: random.Random, count: int, variant: tuple[float, float]
) -> torch.Tensor:
    if _extreme(spec):
        return _mask(spec, reservoir, rng, count)
    mean, deviation = moments(spec)
    scale, shift = variant
    values = reservoir.window("normal", count, rng).mul(deviation * scale).add_(mean + deviation * shift)
    return _clamped(values, spec)


def _clamped(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Within the recorded bounds; a bound that is no wider than the record's own constant says nothing."""
    if spec.min is None or spec.max is None or spec.max - spec.min <= NARROW * max(abs(spec.max), NARROW):
        return values
    return values.clamp_(spec.min, spec.max)


def moments(spec: TensorSpec) -> tuple[float, float]:
    """Mean and standard deviation to draw with: the recorded ones, a constant widened, 0 and 1 if unknown."""
    mean = spec.mean if spec.mean is not None and math.isfinite(spec.mean) else 0.0
    recorded = spec.std if spec.std is not None and math.isfinite(spec.std) else 1.0
    least = NARROW * max(abs(mean), NARROW)
    return mean, recorded if recorded > least else max(WIDTH * abs(mean), WIDTH)


def _extreme(spec: TensorSpec) -> bool:
    bounds = [bound for bound in (spec.min, spec.max, spec.mean) if bound is not None]
    return any(not math.isfinite(bound) or abs(bound) > EXTREME for bound in bounds)


def _mask(spec: TensorSpec, reservoir: Reservoir, rng: random.Random, count: int) -> torch.Tensor:
    """An additive mask: its two recorded bounds, the extreme one for a quarter of the elements."""
    low = spec.min if spec.min is not None else 0.0
    high = spec.max if spec.max is not None else 0.0
    chosen = reservoir.window("uniform", count, rng) < 0.25
    extreme, usual = (low, high) if abs(low) > abs(high) else (high, low)
    return torch.where(chosen, torch.tensor(extreme), torch.tensor(usual))


def _integers(spec: TensorSpec, reservoir: Reservoir, rng: random.Random, count: int) -> torch.Tensor:
    low = int(spec.min) if spec.min is not None else 0
    high = int(spec.max) if spec.max is not None else max(low, 1)
    if low < 0 and spec.dtype in _UNSIGNED:
        low = 0
    values = reservoir.window("uniform", count, rng).double() * (high - low + 1) + low
    return values.floor_().clamp_(low, high).to(torch.int64)
