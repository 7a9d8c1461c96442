"""A check that outputs of several calls of a block lie in different memory.

An output belongs to its caller, so the next call must not overwrite it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_passbench.core.schema import ADDRESS_END
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.verify.outputs import form_at, read_forms
from pytest_passbench.protocol import ENTRY, KIND_TENSOR, Layout

_MAX_SPAN_BYTES = 1 << 62  # more than any memory has
_Addresses = npt.NDArray[np.uint64]


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
    if in_inputs.any():
        found = _in_others_inputs(starts, in_inputs, first, layout.stride)
        if found is not None:
            return found
        ends[in_inputs] = starts[in_inputs]
    return _between_calls(starts, ends)


def shared_by_calls(runner: Runner, layout: Layout, calls: int) -> set[int]:
    """Return the outputs that a runner (eager's) has in memory of several calls, which are constants of the graph."""
    shared: set[int] = set()
    while len(shared) < runner.hello["width"]:
        found = overlap(runner, layout, calls, shared)
        if found is None:
            break
        shared.add(found.output)
    return shared


def _ranges(runner: Runner, calls: int) -> tuple[_Addresses, _Addresses]:
    """Return the first address and the end of each output of each call. Both are equal if it is not a tensor."""
    width = runner.hello["width"]
    data = runner.memory(runner.hello["entries"], ENTRY.size * calls * width)
    table = np.frombuffer(data, "<u8").reshape(calls, width, 2)
    forms = read_forms(runner)
    used, which = np.unique(table[:, :, 1], return_inverse=True)
    found = [form_at(forms, index) for index in used.tolist()]
    spans = np.array(
        [min(form.span, _MAX_SPAN_BYTES) if form.kind == KIND_TENSOR else 0 for form in found], np.uint64
    )
    starts = table[:, :, 0].copy()
    extent = spans[which.reshape(calls, width)]
    return starts, starts + np.minimum(extent, ~starts)  # without overflow


def _in_others_inputs(starts: _Addresses, inside: npt.NDArray[np.bool_], first: int, stride: int) -> Overlap | None:
    for call, output in np.argwhere(inside).tolist():
        slot = (int(starts[call, output]) - first) // stride
        if slot != call:
            return Overlap(output, (call, slot), of_input=True)
    return None


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
