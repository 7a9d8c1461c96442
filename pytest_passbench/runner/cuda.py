"""Blocks on a CUDA device (docs/measuring-cuda.md).

The process that built the program runs them, because a device's context survives no fork. Inputs are copied to the
device before the clock starts. The device is then idle, and its L2 cache holds none of them. A block begins and ends
with all streams of the device idle. Its outputs are described within the block. Those of the calls that the judge
draws are copied to the host later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_passbench.protocol import MAX_OUTPUTS, Layout
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.pages import MappedPages, Slot
from pytest_passbench.runner.serve import Block

_USUAL_L2_BYTES = 64 << 20  # assumed if torch does not state the size


class CudaBlock(Block):
    """Up to ``calls`` calls on copies of the inputs. Their layout on the device is that of the shared pages."""

    def __init__(
        self,
        device: str,
        call: Callable[..., Any],
        pages: MappedPages,
        calls: int,
        mutated: tuple[int, ...],
        outputs: int,
    ) -> None:
        self.device, self.call, self.mutated = torch.device(device), call, mutated
        self._stride = pages.layout.stride
        self._host = torch.frombuffer(pages.memory, dtype=torch.uint8)
        self._memory = torch.zeros(pages.layout.size, dtype=torch.uint8, device=self.device)
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
        }
        torch.cuda.synchronize(self.device)

    def prepare(self, calls: int) -> None:
        """Copy the inputs of ``calls`` calls to the device. Then flush its L2 cache by writing."""
        size = calls * self._stride
        self._memory[:size].copy_(self._host[:size])
        self._flush.zero_()
        torch.cuda.synchronize(self.device)

    def run(self, calls: int) -> None:
        """Make the calls between two waits for the whole device, and between two events, whose time is evidence."""
        self._timed(super().run, calls)

    def run_empty(self, calls: int) -> None:
        """Run the same block around a call that returns earlier outputs."""
        self._timed(super().run_empty, calls)

    def _timed(self, run: Any, calls: int) -> None:
        torch.cuda.synchronize(self.device)
        stream = torch.cuda.current_stream(self.device)
        self._events[0].record(stream)
        run(calls)
        self._events[1].record(stream)
        torch.cuda.synchronize(self.device)
        self._seconds.value = self._events[0].elapsed_time(self._events[1]) * 1e-3

    def collect(self, call: int) -> None:
        """Copy the outputs of call number ``call`` to the host, and its inputs as they are now."""
        outputs = self.results[call] if type(self.results[call]) is tuple else ()
        self._collected = [_on_host(output) for output in outputs[:MAX_OUTPUTS]]
        for index, tensor in enumerate(self._collected):
            self._copies[index] = tensor.data_ptr()
        start = call * self._stride
        self._inputs.copy_(self._memory[start : start + self._stride])


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


def l2_bytes(device: torch.device) -> int:
    """Return the bytes of the device's L2 cache."""
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or _USUAL_L2_BYTES)
