"""Whether outputs share memory as eager's do, and whether inputs are as the judge left them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..protocol import Layout
from .outputs import Output
from .runner import Runner

FRESH = -1


def owners(runner: Runner, layout: Layout, outputs: Sequence[Output], slot: int) -> list[int]:
    """Per output whose memory it lies in: an input's index, an earlier output's (counted on from the inputs),
    or FRESH."""
    first = int(runner.hello["pages"]) + slot * layout.stride
    found: list[int] = []
    for index, output in enumerate(outputs):
        inside = output.address - first
        if 0 <= inside < layout.stride and output.value is not None:
            found.append(max(i for i, offset in enumerate(layout.offsets) if offset <= inside))
        else:
            found.append(_earlier(outputs, index, len(layout.offsets)))
    return found


def _earlier(outputs: Sequence[Output], index: int, inputs: int) -> int:
    mine = outputs[index]
    for number, other in enumerate(outputs[:index]):
        if other.address == mine.address and mine.value is not None and mine.value.numel():
            return inputs + number
    return FRESH


def shares_more(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """The first output that lies in memory which eager's does not lie in; None where there is none.

    A fresh copy where eager returns a view is fine: nobody who uses it can tell.
    """
    for index, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        if theirs not in (FRESH, ours):
            return index
    return None


def changed_input(
    runner: Runner, layout: Layout, slot: int, values: Sequence[torch.Tensor], mutated: Sequence[int]
) -> int | None:
    """The first input of the call that the runner changed although eager does not; None where there is none."""
    for index, value in enumerate(values):
        if index in mutated or value.numel() == 0:
            continue
        size = value.numel() * value.element_size()
        theirs = torch.frombuffer(runner.input_bytes(layout, slot, index, size), dtype=torch.uint8)
        if not torch.equal(theirs, value.contiguous().flatten().view(torch.uint8)):
            return index
    return None
