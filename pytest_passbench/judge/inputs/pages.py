"""The judge's end of the input pages, which only the judge can write to."""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
from collections.abc import Sequence

import torch

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.protocol import Layout

ALIGNMENT = 64  # bytes, as torch's own allocator gives
MAX_SLOTS_BYTES = 48 << 20  # of inputs in the slots of a block. Two slots may take more
MAX_SLOTS = 192
MAX_DEVICE_SLOTS = 1024  # blocks on a device are longer
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10  # F_SEAL_FUTURE_WRITE: only this mapping may write


def plan_layout(specs: Sequence[TensorSpec], max_slots: int = MAX_SLOTS) -> Layout:
    """Return a layout with slots for as many calls as fit into :data:`MAX_SLOTS_BYTES`, at most ``max_slots``.

    There are at least two slots, so that neighbouring calls differ.
    """
    offsets, stride = [], 0
    for spec in specs:
        offsets.append(stride)
        size = math.prod(spec.shape) * int(getattr(torch, spec.dtype).itemsize)
        stride += -(-size // ALIGNMENT) * ALIGNMENT
    stride = max(stride, ALIGNMENT)
    slots = max(2, min(max_slots, MAX_SLOTS_BYTES // stride))
    shapes, dtypes = tuple(spec.shape for spec in specs), tuple(spec.dtype for spec in specs)
    return Layout(slots, stride, tuple(offsets), shapes, dtypes)


def max_slots(device: str) -> int:
    """Return the greatest number of calls in a block on this device."""
    return MAX_DEVICE_SLOTS if is_cuda(device) else MAX_SLOTS


class Pages:
    """A memfd with the inputs of every slot. It is sealed, so that only this mapping can write to it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        size = max(layout.size, 1)
        self.fd = os.memfd_create("passbench-inputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        #: For each input, the addresses of its value in the slots.
        self.addresses = [
            [base + slot * layout.stride + offset for slot in range(layout.slots)] for offset in layout.offsets
        ]

    def put(self, index: int, slot: int, value: torch.Tensor) -> None:
        """Write the value of an input of a slot."""
        flat = value.contiguous()
        ctypes.memmove(self.addresses[index][slot], flat.data_ptr(), flat.numel() * flat.element_size())

    def close(self) -> None:
        """Release the pages. Their addresses must not be used any more."""
        self.addresses = []
        os.close(self.fd)
        self.memory.close()
