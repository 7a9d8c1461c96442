"""Blocks on a CUDA device (docs/measuring-details.md).

The process that built the program runs them, because a device's context survives no fork. Inputs are copied to the
device before the clock starts. The device is then idle, and its L2 cache holds none of them. A block begins and ends
with all streams of the device idle. Its outputs are described when the clock has stopped. The outputs of the calls
that the judge draws are copied to the host later.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_passbench.protocol import (
    FLAG_COLLECT,
    FLAG_DESCRIBE,
    FLAG_DEVICE_TIME,
    FLAG_POISON,
    FLAG_PREPARE,
    MAX_OUTPUTS,
    Layout,
)
from pytest_passbench.runner.cuda import libcuda
from pytest_passbench.runner.cuda.device_memory import DeviceMemory
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.pages import MappedPages, Slot
from pytest_passbench.runner.serve import PythonBlock

_HELD_BACK_CYCLES = 4_000_000  # 2 ms at 2 GHz: for the process to queue its calls
_FILLED_PARTS, _FILLS, _FILL_TRIES = (1, 2, 4, 8, 16), 8, 3  # divisors of the size, fills between two events, tries
_USUAL_L2_BYTES = 64 << 20  # assumed if torch does not state the size


def _native(name: str, instead: Callable[..., None]) -> Callable[..., None]:
    """Return torch's native function, or ``instead`` if this torch is built without CUDA."""
    return getattr(torch._C, name, None) or instead


#: Bound when the zygote imports this module, before any line of a candidate is read. So what is later put in their
#: place in ``torch.cuda`` is not called. Both act on the current device.
_synchronize = _native("_cuda_synchronize", lambda: torch.cuda.synchronize())
_hold_back = _native("_cuda_sleep", lambda _cycles: None)


class CudaBlock(PythonBlock):
    """Up to ``calls`` calls on copies of the inputs. Their layout on the device is that of the shared pages.

    ``poison`` makes the program's plans allocate memory full of drawn contents from then on. ``shared`` is the
    descriptor of memory with the inputs, which the keeper writes to and all runners may read. Without it each runner
    copies them.
    """

    def __init__(
        self,
        device: str,
        call: Callable[..., Any],
        pages: MappedPages,
        calls: int,
        mutated: tuple[int, ...],
        outputs: int,
        poison: Callable[[], None] = lambda: None,
        shared: int | None = None,
    ) -> None:
        self.poison = poison
        self.device, self.call, self.mutated = torch.device(device), call, mutated
        self._stride = pages.layout.stride
        self._host = torch.frombuffer(pages.memory, dtype=torch.uint8)
        self._arena = _shared(self.device, pages.layout.size, shared)
        if self._arena is None:
            self._memory = torch.zeros(pages.layout.size, dtype=torch.uint8, device=self.device)
        else:
            self._memory = self._arena.tensor(self.device)
        self.slots = [device_slot(self._memory, pages.layout, index) for index in range(calls)]
        self.copies = [tuple(slot[i].clone() for i in mutated) for slot in self.slots] if mutated else []
        self.tables = OutputTables(calls, outputs + len(mutated))
        self.results: list[Any] = []
        self._collected: list[torch.Tensor] = []
        self._copies = (ctypes.c_uint64 * MAX_OUTPUTS)()
        self._inputs = torch.zeros(self._stride, dtype=torch.uint8)
        self._seconds = ctypes.c_double(0.0)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._flush = torch.empty(2 * l2_bytes(self.device), dtype=torch.uint8, device=self.device)
        self.inputs = self._memory.data_ptr()
        self.places = {
            "copies": ctypes.addressof(self._copies),
            "input_copy": self._inputs.data_ptr(),
            "device_seconds": ctypes.addressof(self._seconds),
            "fill_rate": fill_rate(self._flush),
        }
        _synchronize()

    def step(self, flags: int, calls: int) -> bool:
        """Do a step outside of a timed block. Return False if ``flags`` ask for a timed block."""
        if flags & FLAG_PREPARE:
            self.prepare(calls)
        elif flags & FLAG_COLLECT:
            self.collect(calls)
        elif flags & FLAG_DESCRIBE:
            self.tables.write(self.results)
        elif flags & FLAG_POISON:
            self.poison()
        elif flags & FLAG_DEVICE_TIME:
            self._time_device(calls)
        else:
            return False
        return True

    def prepare(self, calls: int) -> None:
        """Copy the inputs of ``calls`` calls to the device, unless they are shared.

        Make private copies of those that eager changes. Then flush the device's L2 cache by writing.
        """
        size = calls * self._stride
        if self._arena is None:
            self._memory[:size].copy_(self._host[:size])
        for slot, copies in zip(self.slots[:calls], self.copies, strict=False):
            for index, copy in zip(self.mutated, copies, strict=True):
                copy.copy_(slot[index])
        self._flush.zero_()
        _synchronize()

    def run(self, calls: int) -> None:
        """Make the calls between two waits for the whole device. The outputs are described later."""
        _synchronize()
        self.results = self._calls(self.call, calls)
        _synchronize()

    def run_empty(self, calls: int) -> None:
        """Wait for the device as a block does, around no calls.

        This process's work for the calls overlaps with the device's work, so none of its time can be subtracted.
        """
        del calls
        _synchronize()
        _synchronize()

    def _with_copies(self, slot: Slot, copies: Slot) -> list[torch.Tensor]:
        """Return a call's inputs. The copies already hold the slot's values."""
        inputs = list(slot)
        for index, copy in zip(self.mutated, copies, strict=True):
            inputs[index] = copy
        return inputs

    def _time_device(self, calls: int) -> None:
        """Time calls between two events, behind a kernel that holds the device back until all of them are queued.

        So the time has no gaps in which the device waits for this process. Only the current stream is timed.
        """
        stream = torch.cuda.current_stream(self.device)
        _hold_back(_HELD_BACK_CYCLES)
        self._events[0].record(stream)
        results = self._calls(self.call, calls)
        self._events[1].record(stream)
        _synchronize()
        del results
        self._seconds.value = self._events[0].elapsed_time(self._events[1]) * 1e-3

    def close(self) -> None:
        """Give shared memory back. The block can't be used any more."""
        self.results, self.slots = [], []
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def collect(self, call: int) -> None:
        """Copy the outputs of call number ``call`` to the host, and its inputs as they are now."""
        outputs = self.results[call] if type(self.results[call]) is tuple else ()
        self._collected = [_on_host(output) for output in outputs[:MAX_OUTPUTS]]
        for index, tensor in enumerate(self._collected):
            self._copies[index] = tensor.data_ptr()
        start = call * self._stride
        self._inputs.copy_(self._memory[start : start + self._stride])


def _shared(device: torch.device, size: int, shared: int | None) -> DeviceMemory | None:
    """Return the memory behind a descriptor, mapped read-only. Return None without a descriptor."""
    if shared is None:
        return None
    memory = DeviceMemory(libcuda.library(), device.index or 0, size, shared)
    os.close(shared)
    return memory


def device_slot(memory: torch.Tensor, layout: Layout, index: int) -> Slot:
    """Return the inputs of slot ``index`` as views of ``memory`` (uint8, flat, ``layout.size`` bytes)."""
    places = zip(layout.offsets, layout.shapes, layout.dtypes, strict=True)
    return tuple(_view(memory, index * layout.stride + offset, shape, dtype) for offset, shape, dtype in places)


def _view(memory: torch.Tensor, offset: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = getattr(torch, dtype)
    tensor = torch.empty(shape, dtype=kind, device="meta")
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes == 0:
        return torch.empty(shape, dtype=kind, device=memory.device)
    return memory[offset : offset + nbytes].view(kind).view(shape)


def _on_host(output: Any) -> torch.Tensor:
    """Return a flat copy on the host of all memory that a tensor spans. The tensor's strides still hold in it."""
    if type(output) is not torch.Tensor or output.numel() == 0:
        return torch.empty(0)
    sizes = zip(output.shape, output.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in sizes)
    return torch.as_strided(output, (extent,), (1,), output.storage_offset()).cpu()


def fill_rate(memory: torch.Tensor) -> int:
    """Return the bytes per second that a device fills, the best of several sizes. ``memory`` has twice the L2's size.

    Parts that fit into the cache are filled fastest, but a small one takes less time than its launch.
    """
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream, best = torch.cuda.current_stream(memory.device), 1.0
    for part in _FILLED_PARTS:
        piece = memory[: max(1, memory.numel() // part)]
        for _ in range(_FILL_TRIES):
            start.record(stream)
            for _ in range(_FILLS):
                piece.zero_()
            end.record(stream)
            _synchronize()
            best = max(best, _FILLS * piece.numel() / max(1e-9, start.elapsed_time(end) * 1e-3))
    return int(best)


def l2_bytes(device: torch.device) -> int:
    """Return the bytes of the device's L2 cache."""
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or _USUAL_L2_BYTES)
