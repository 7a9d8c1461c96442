"""Checks that outputs share no more memory than eager's do, and that inputs are as the judge wrote them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.verify.compare import same_bytes
from pytest_passbench.judge.verify.outputs import Output
from pytest_passbench.protocol import Layout

FRESH = -1  # owner of an output in memory of its own
MAX_WHOLE_BYTES = 1 << 16  # of an input that is always read as a whole, which is as fast as asking for its own pages
PROBES, PROBE_BYTES = 4, 1 << 12  # number and size of the random places that are read of a larger input


def owners(runner: Runner, layout: Layout, outputs: Sequence[Output], slot: int) -> list[int]:
    """Return the owner of each output's memory: an input, an earlier output, or FRESH.

    Inputs are given by their index. Earlier outputs are counted on from the number of inputs. ``slot`` is the call's.
    """
    first = runner.hello["pages"] + slot * layout.stride
    found: list[int] = []
    for index, output in enumerate(outputs):
        inside = output.address - first
        if 0 <= inside < layout.stride and output.value is not None:
            found.append(max(i for i, offset in enumerate(layout.offsets) if offset <= inside))
        else:
            empty = output.value is None or not output.value.numel()
            same = (number for number, other in enumerate(outputs[:index]) if other.address == output.address)
            earlier = None if empty else next(same, None)
            found.append(FRESH if earlier is None else len(layout.offsets) + earlier)
    return found


def shares_more(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """Return the first output that shares memory which eager's does not share, or None.

    ``expected`` are eager's owners, ``found`` the arm's. A fresh copy instead of eager's view is fine.
    """
    for index, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        if theirs not in (FRESH, ours):
            return index
    return None


def changed_input(
    runner: Runner, layout: Layout, slot: int, values: Sequence[torch.Tensor], mutated: Sequence[int]
) -> int | None:
    """Return the first input of a call that the runner changed although eager does not, or None.

    ``values`` are the inputs as written, ``mutated`` the indices of those that eager changes. Raises ArmFailure.
    """
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
    """Return the ranges of an input to read: the pages that the runner has written to, and some random places.

    The random places are read since a runner might have mapped other memory over the judge's.
    """
    written = runner.written(layout, slot, index, size) if size > MAX_WHOLE_BYTES else None
    if written is None:
        return [range(size)]
    starts = [secrets.randbelow(size - PROBE_BYTES + 1) for _ in range(PROBES)]
    return [*written, *(range(start, start + PROBE_BYTES) for start in starts)]
