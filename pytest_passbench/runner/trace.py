"""Traced calls of a program whose kernels have ended a measured process: which launch is it, and what does it touch?

Nothing here is timed. Each C++ kernel gets copies of the memory that its launch works on, between pages that cannot
be read or written. A shared page tells the judge which launch began last, and how it ended. The kernel can write to
that page too, so what stands there is data to the judge, and no verdict depends on it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pytest_passbench.plans.launch import Allocate, Launch, LaunchPlan, Operand, Operator
from pytest_passbench.protocol import (
    MAX_TRACED,
    TRACE_BYTES,
    TRACE_HEAD,
    TRACE_ROW,
    TRACE_SOURCES,
    TraceHead,
    TraceRow,
)
from pytest_passbench.runner.engine import Engine
from pytest_passbench.runner.native_code import CppFunction
from pytest_passbench.runner.pages import Slot
from pytest_passbench.runner.replay import Replayed, replay

GUARD_BYTES = 16 << 20  # of address space, without memory behind it
MARK = 0xA5  # the value of each byte between a guard and a copy
ALIGNMENT = 64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class TracePage:
    """The page behind ``descriptor``, which the judge reads when this process has ended."""

    def __init__(self, descriptor: int, engine: Engine | None) -> None:
        self._memory = mmap.mmap(descriptor, TRACE_BYTES)
        os.close(descriptor)
        self._words = (ctypes.c_int64 * (TRACE_BYTES // 8)).from_buffer(self._memory)
        if engine is not None:
            engine.note_faults(ctypes.addressof(self._words) + 8 * TraceHead._fields.index("signal"))

    def begin(self, plan: int, launch: int, copies: Iterable[GuardedCopy]) -> None:
        """Write which launch is about to begin (numbers from 0 on), and where the memory lies that it works on."""
        self._write(plan=plan + 1, launch=launch + 1, running=1)
        for number, copy in enumerate(list(copies)[:MAX_TRACED]):
            place = TRACE_HEAD + number * TRACE_ROW
            self._words[place : place + TRACE_ROW] = list(copy.row())

    def end(self, copies: Sequence[GuardedCopy]) -> None:
        """Write that the launch has returned. If it wrote outside of a copy, write which one and end the process."""
        for number, copy in enumerate(copies[:MAX_TRACED]):
            distance = copy.written_around()
            if distance:
                self._write(memory=number + 1, distance=distance)
                os._exit(0)
        self._write(running=0)

    def _write(self, **numbers: int) -> None:
        """Write numbers of the page's head by their names."""
        for name, number in numbers.items():
            self._words[TraceHead._fields.index(name)] = number


class GuardedCopy:
    """A copy of ``size`` bytes at ``address`` between two guards, close to the first or to the second one.

    Its address equals the original's modulo :data:`ALIGNMENT`. Raises MemoryError.
    """

    def __init__(self, source: str, index: int, address: int, size: int, at_end: bool) -> None:
        page = mmap.PAGESIZE
        self._address, self._size = address, size
        room = -(-(size + ALIGNMENT) // page) * page
        self._bytes = room + 2 * GUARD_BYTES
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._base = _libc.mmap(None, self._bytes, 0, private, -1, 0)
        if self._base == _FAILED:
            raise MemoryError("no room for a guarded copy")
        self._first = self._base + GUARD_BYTES
        self._last = self._first + room
        _libc.mprotect(self._first, room, mmap.PROT_READ | mmap.PROT_WRITE)
        ctypes.memset(self._first, MARK, room)
        place = self._last - size if at_end else self._first + ALIGNMENT - 1
        self.place = place - (place - address) % ALIGNMENT
        ctypes.memmove(self.place, address, size)
        self._source, self._index = source, index

    def row(self) -> TraceRow:
        """Return the row for this copy in the shared page."""
        source, end = TRACE_SOURCES.index(self._source), self._base + self._bytes
        return TraceRow(source, self._index, self._base, self.place, self.place + self._size, end)

    def written_around(self) -> int:
        """Return how many bytes beyond the copy a launch wrote: behind its end, or if negative, before its start."""
        end = self.place + self._size
        behind = _marks(end, self._last - end)
        if behind:
            return 1 + behind[-1]
        before = _marks(self._first, self.place - self._first)
        return before[0] - (self.place - self._first) if before else 0

    def put_back(self) -> None:
        """Copy the contents to the original's place, and give the memory back."""
        ctypes.memmove(self._address, self.place, self._size)
        _libc.munmap(self._base, self._bytes)


def _marks(address: int, size: int) -> list[int]:
    """Return the offsets within ``size`` bytes at which the mark is gone."""
    data = ctypes.string_at(address, size)
    return [] if data == bytes([MARK]) * size else [place for place, byte in enumerate(data) if byte != MARK]


@dataclass
class TracedPlan:
    """A plan whose launches of C++ kernels are traced, one call after another."""

    number: int
    plan: LaunchPlan
    page: TracePage
    at_end: bool = True
    _begun: int = 0

    def __post_init__(self) -> None:
        self._launches = [step for step in self.plan.steps if isinstance(step, Launch)]
        self._sizes = _sizes(self.plan)

    def launch(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Launch a kernel on guarded copies of its memory. Raises MemoryError."""
        number = self._begun % len(self._launches)
        self._begun += 1
        copies: dict[tuple[str, int], GuardedCopy] = {}
        moved = list(arguments)
        for position, operand in enumerate(self._launches[number].arguments):
            if not isinstance(operand, Operand) or not arguments[position]:
                continue
            key = (operand.source, operand.index)
            if key not in copies:
                address = arguments[position] - operand.offset
                copies[key] = GuardedCopy(*key, address, self._sizes.get(key, 0), self.at_end)
            moved[position] = copies[key].place + operand.offset
        self.page.begin(self.number, number, copies.values())
        kernel(*moved)
        self.page.end(list(copies.values()))
        for copy in copies.values():
            copy.put_back()


def _sizes(plan: LaunchPlan) -> dict[tuple[str, int], int]:
    """Return the size in bytes of each argument, table and buffer of a plan, by source and index."""
    sizes = {("argument", index): tensor.form.nbytes for index, tensor in enumerate(plan.tensors)}
    sizes |= {("table", index): table.nbytes for index, table in enumerate(plan.tables)}
    buffers = 0
    for step in plan.steps:
        results = step.results if isinstance(step, Operator) else ()
        new = [item.form for item in results if item.source == "buffer" and item.index >= buffers]
        for form in [step.form] if isinstance(step, Allocate) else new:
            sizes["buffer", buffers] = form.nbytes
            buffers += 1
    return sizes


def call_traced(call: Callable[..., Any], slots: Sequence[Slot], plans: Sequence[TracedPlan]) -> None:
    """Call a program on each slot's inputs twice: with copies close to the guard behind them, then to the other."""
    for slot in slots:
        for at_end in (True, False):
            for plan in plans:
                plan.at_end = at_end
            call(*slot)


def traced(replayed: Sequence[Replayed], page: TracePage) -> list[TracedPlan]:
    """Have the launches of these plans traced in this process from now on, and return them."""
    plans = []
    for number, item in enumerate(replayed):
        plan = TracedPlan(number, item.plan, page)
        # Triton's interpreter needs no trace.
        kernels = [partial(plan.launch, cast(Any, x)) if isinstance(x, CppFunction) else x for x in item.kernels]
        item.become(replay(item.plan, kernels, "cpu", item.sequence, (), item.written))
        plans.append(plan)
    return plans
