"""Whether outputs share memory as eager's do, and whether inputs are as the judge left them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.verify.compare import same_bytes
from pytest_passbench.judge.verify.outputs import Output
from pytest_passbench.protocol import Layout

FRESH = -1
MAX_WHOLE_BYTES = 1 << 16  # of an input: reading all of it takes no longer than asking what to read
PROBES, PROBE_BYTES = 4, 1 << 12  # how many places to look at besides, and bytes of each


def owners(runner: Runner, layout: Layout, outputs: Sequence[Output], slot: int) -> list[int]:
    """Per output whose memory it lies in: an input's index, an earlier output's (counted on from the inputs),
    or FRESH."""
    first = runner.hello["pages"] + slot * layout.stride
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
        ours = value.contiguous().flatten().view(torch.uint8)
        for place in _doubtful(runner, layout, slot, index, ours.numel()):
            theirs = torch.frombuffer(runner.input_bytes(layout, slot, index, place), dtype=torch.uint8)
            if not same_bytes(theirs, ours[place.start : place.stop]):
                return index
    return None


def _doubtful(runner: Runner, layout: Layout, slot: int, index: int, size: int) -> list[range]:
    """What to read of an input: what the runner has written to, and, as it might have put other memory in the
    place of the judge's, some of the rest, wherever chance says."""
    written = runner.written(layout, slot, index, size) if size > MAX_WHOLE_BYTES else None
    if written is None:
        return [range(size)]
    starts = [secrets.randbelow(size - PROBE_BYTES + 1) for _ in range(PROBES)]
    return [*written, *(range(start, start + PROBE_BYTES) for start in starts)]
