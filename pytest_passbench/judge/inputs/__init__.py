"""The inputs of every call: secret, and fresh in every element of every call of every block.

A key of the run's secret and a counter (block, call, input) decide every value. So the inputs of any call can be made
again when it is verified. Values that a candidate has seen tell nothing about later ones.

The inputs of one subgraph are written into the pages block by block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs.beyond import Range, changed, movable, ranges
from pytest_passbench.judge.inputs.distribution import DRAWN_AS, Draw, Literal, distribution
from pytest_passbench.judge.inputs.generator import Generator, default
from pytest_passbench.judge.inputs.pages import Pages

__all__ = ["Batch", "Generator", "Inputs", "default"]


@dataclass(frozen=True)
class Batch:
    """A block's number and the number of its calls. The values follow from the block's number."""

    block: int = 0
    calls: int = 0


class Inputs:
    """The inputs of one subgraph, from a key of their own."""

    def __init__(self, specs: Sequence[TensorSpec | Draw], key: bytes, generator: Generator | None = None) -> None:
        draws = [spec if isinstance(spec, Draw) else distribution(spec) for spec in specs]
        generator = generator or default()
        self._draws, self._key, self._generator, self._blocks = draws, key, generator, 0
        #: Indices of the inputs whose values may lie outside the recorded range.
        self.movable = [index for index, draw in enumerate(draws) if movable(draw)]
        direct = [None if isinstance(draw.of, Literal) else draw.drawn_as for draw in draws]
        self._apart = [i for i, draw in enumerate(draws) if isinstance(draw.of, Literal) or draw.dtype in DRAWN_AS]
        self._writer = generator.writer(key, [None if i in self._apart else draw for i, draw in enumerate(direct)])
        self._scratch = generator.writer(key, [draw if i in self._apart else None for i, draw in enumerate(direct)])

    def draw(self, calls: int) -> Batch:
        """Return a new block, which was not drawn before."""
        self._blocks += 1
        return Batch(self._blocks, calls)

    def write(self, batch: Batch, pages: Pages) -> None:
        """Write the inputs of a block into the pages, one slot for each call."""
        layout = pages.layout
        if not layout.offsets or not batch.calls:
            return
        base = pages.addresses[0][0] - layout.offsets[0]
        self._writer.block(batch.block, batch.calls, base, layout.offsets, layout.stride)
        for index in self._apart:
            for call in range(batch.calls):
                pages.put(index, call, self.values(index, batch, call))

    def values(self, index: int, batch: Batch, call: int) -> torch.Tensor:
        """Return an input of one call of a block, made again with the bits that were written."""
        draw = self._draws[index]
        if isinstance(draw.of, Literal):
            return draw.of.values.view(draw.shape)
        drawn = draw.drawn_as
        value = torch.empty(drawn.shape, dtype=drawn.torch_dtype)
        writer = self._scratch if index in self._apart else self._writer
        writer.single(batch.block, call, index, value.data_ptr())
        return draw.converted(value) if index in self._apart else value

    def call(self, batch: Batch, call: int) -> list[torch.Tensor]:
        """Return all inputs of one call of a block, made again."""
        return [self.values(index, batch, call) for index in range(len(self._draws))]

    def ranges(self) -> list[Range]:
        """Return the ranges outside the recorded one that these inputs can have."""
        return ranges(self._draws)

    def beyond(self, where: Range) -> Inputs:
        """Return the inputs of the same subgraph in another range, from a key of their own."""
        key = hashlib.sha256(self._key + self.draw(0).block.to_bytes(8, "little") + where.name.encode()).digest()
        return Inputs([changed(draw, where, i) for i, draw in enumerate(self._draws)], key, self._generator)

    def name(self, index: int) -> str:
        return self._draws[index].name
