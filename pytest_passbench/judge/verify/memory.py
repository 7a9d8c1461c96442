"""Checks that outputs share no more memory than eager's do, and that inputs are as the judge wrote them.

An output belongs to its caller, so the next call of a block must not overwrite it, and the judge may overwrite it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pytest_passbench.core.agreement import same_bytes
from pytest_passbench.core.schema import ADDRESS_END
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.verify.outputs import Output, form_at, output_table, read_forms, stated
from pytest_passbench.protocol import KIND_TENSOR, Layout

MAX_WHOLE_BYTES = 1 << 16  # of an input that is always read as a whole, which is as fast as asking for its own pages
PROBES, PROBE_BYTES = 4, 1 << 12  # number and size of the random places that are read of a larger input
LINE_BYTES = 64
_MAX_SPAN_BYTES = 1 << 62  # more than any memory has
_Addresses = npt.NDArray[np.uint64]


def owners(runner: Runner, layout: Layout, outputs: Sequence[Output], slot: int) -> list[set[int]]:
    """Return the owners of each output's memory: an input, or earlier outputs that it overlaps; none if it is fresh.

    An input has its index as its number, an output its index plus the number of inputs. ``slot`` is the call's.
    """
    first = runner.hello["pages"] + slot * layout.stride
    owned_by: list[set[int]] = []
    for index, output in enumerate(outputs):
        inside = output.address - first
        if 0 <= inside < layout.stride and output.value is not None:
            owned_by.append({max(i for i, offset in enumerate(layout.offsets) if offset <= inside)})
        else:
            earlier = (number for number, other in enumerate(outputs[:index]) if _overlaps(output, other))
            owned_by.append({len(layout.offsets) + number for number in earlier})
    return owned_by


def _overlaps(output: Output, other: Output) -> bool:
    """Return True if both are tensors with elements, and the memory from first to last element overlaps."""
    size, other_size = (0 if item.value is None else item.form.span for item in (output, other))
    begins = output.address < other.address + other_size and other.address < output.address + size
    return begins and size > 0 and other_size > 0


def overwrite(runner: Runner, layout: Layout, calls: Sequence[int], rng: random.Random) -> list[int]:
    """Write up to :data:`LINE_BYTES` drawn bytes to a drawn place in the outputs of ``calls``. Return the addresses.

    Outputs in inputs or on a device are left alone. The next block's outputs lie in the same memory. A program that
    recognises its own answer there, by a pattern in some elements, could else leave out what never changes, such as
    the zeros beside a diagonal. Raises ArmFailure if the memory cannot be written to.
    """
    pages = range(runner.hello["pages"], runner.hello["pages"] + layout.size)
    forms, lines = read_forms(runner), list[int]()
    for call in calls:
        tensors = [(address, form.span) for address, form in stated(runner, call, forms)
                   if form.kind == KIND_TENSOR and form.device == "cpu" and address not in pages]  # fmt: skip
        places = [(address, size) for address, size in tensors if size and address + size < ADDRESS_END]
        if places:
            address, size = rng.choice(places)
            offset = rng.randrange(size)
            runner.overwrite(address + offset, rng.randbytes(min(LINE_BYTES, size - offset)))
            lines.append(address + offset)
    return lines


def call_at(runner: Runner, calls: int, address: int) -> int | None:
    """Return the first of a block's ``calls`` calls with an output at this address, if any. Raises ArmFailure."""
    starts, ends = _ranges(runner, calls)
    there = (starts <= address) & (ends > address)
    return int(there.any(axis=1).argmax()) if there.any() else None


def shares_more(expected: Sequence[set[int]], actual: Sequence[set[int]]) -> int | None:
    """Return the first output that shares memory which eager's does not share, or None.

    ``expected`` are eager's owners, ``actual`` the arm's. A fresh copy instead of eager's view is fine.
    """
    pairs = enumerate(zip(expected, actual, strict=True))
    return next((index for index, (eager, arm) in pairs if not arm <= eager), None)


def changed_input(
    runner: Runner, layout: Layout, slot: int, values: Sequence[torch.Tensor], mutated: Sequence[int]
) -> int | None:
    """Return the first input of a call that the runner changed although eager does not, or None.

    ``values`` are the inputs as written, ``mutated`` the indices of those that eager changes. Raises ArmFailure.
    """
    for index, value in enumerate(values):
        if index in mutated or value.numel() == 0:
            continue
        written = value.contiguous().flatten().view(torch.uint8)
        for place in _doubtful(runner, layout, slot, index, written.numel()):
            present = torch.frombuffer(runner.input_bytes(layout, slot, index, place), dtype=torch.uint8)
            if not same_bytes(present, written[place.start : place.stop]):
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


@dataclass(frozen=True)
class Overlap:
    """Two calls, one of which has its output number ``output`` in memory of the other.

    If ``of_input`` is True, the first call's output lies in the second call's inputs.
    """

    output: int
    calls: tuple[int, int]
    of_input: bool = False

    def __str__(self) -> str:
        if self.of_input:
            return f"output {self.output} of call {self.calls[0]} lies in the inputs of call {self.calls[1]}"
        return f"outputs of calls {self.calls[0]} and {self.calls[1]} share memory"


def overlap(runner: Runner, layout: Layout, calls: int, shared: Collection[int] = ()) -> Overlap | None:
    """Return the first overlap between two of the ``calls`` calls of the last block, or None.

    ``shared`` are the outputs that eager also has in memory of several calls; they are ignored. So are outputs
    without elements, and views of a call's own inputs. Raises ArmFailure if the tables can't be read.
    """
    starts, ends = _ranges(runner, calls)
    ends[:, list(shared)] = starts[:, list(shared)]
    first = runner.hello["pages"]
    last = min(first + layout.size, ADDRESS_END - 1)
    in_inputs = (starts >= np.uint64(first)) & (starts < np.uint64(last)) & (ends > starts)
    slots = (starts - np.uint64(first)) // np.uint64(max(layout.stride, 1))
    in_others = np.argwhere(in_inputs & (slots != np.arange(calls, dtype=np.uint64)[:, None]))
    if len(in_others):
        call, output = in_others[0].tolist()
        return Overlap(output, (call, int(slots[call, output])), of_input=True)
    ends[in_inputs] = starts[in_inputs]
    return _between_calls(starts, ends)


def shared_by_calls(runner: Runner, layout: Layout, calls: int) -> set[int]:
    """Return the outputs that a runner (eager's) has in memory of several calls, which are constants of the graph."""
    shared: set[int] = set()
    while len(shared) < runner.hello["width"]:
        pair = overlap(runner, layout, calls, shared)
        if pair is None:
            break
        shared.add(pair.output)
    return shared


def _ranges(runner: Runner, calls: int) -> tuple[_Addresses, _Addresses]:
    """Return the first address and the end of each output of each call. Both are equal if it is not a tensor."""
    width = runner.hello["width"]
    table = np.frombuffer(output_table(runner, calls), "<u8").reshape(calls, width, 2)
    forms = read_forms(runner)
    used, which = np.unique(table[:, :, 1], return_inverse=True)
    stated = [form_at(forms, index) for index in used.tolist()]
    spans = np.array(
        [min(form.span, _MAX_SPAN_BYTES) if form.kind == KIND_TENSOR else 0 for form in stated], np.uint64
    )
    starts = table[:, :, 0].copy()
    extent = spans[which.reshape(calls, width)]
    return starts, starts + np.minimum(extent, ~starts)  # without overflow


def _between_calls(starts: _Addresses, ends: _Addresses) -> Overlap | None:
    calls, outputs = np.nonzero(ends > starts)
    begin, end = starts[calls, outputs], ends[calls, outputs]
    order = np.argsort(begin, kind="stable")
    if not len(order) or not (begin[order][1:] < np.maximum.accumulate(end[order])[:-1]).any():
        return None
    # Outputs of one call may share memory, as eager's do. So the loop keeps the furthest end so far, and the furthest
    # end of any other call.
    far = second = (0, -1)  # end and call; ``second`` is of another call than ``far``
    for place in order.tolist():
        call, start, stop = int(calls[place]), int(begin[place]), int(end[place])
        other = far if far[1] != call else second
        if start < other[0]:
            return Overlap(int(outputs[place]), (other[1], call))
        if far[1] == call:
            far = max(far, (stop, call))
        elif stop > far[0]:
            far, second = (stop, call), far
        elif stop > second[0]:
            second = (stop, call)
    return None
