"""The shared input pages as tensors, seen from a runner.

The judge owns the pages and writes to them. A runner's mapping is private, so no other process sees what a runner
writes (docs/isolation.md).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os

import torch

from pytest_passbench.protocol import Layout

Slot = tuple[torch.Tensor, ...]


class MappedPages:
    """The pages behind ``fd``, mapped, with a tuple of input tensors per slot (on the CPU, contiguous)."""

    def __init__(self, fd: int, layout: Layout) -> None:
        self.layout = layout
        self.memory = mmap.mmap(
            fd, max(layout.size, 1), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
        os.close(fd)
        self.slots = [self._slot(index) for index in range(layout.slots)]

    @property
    def address(self) -> int:
        """The address of the mapping in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def _slot(self, index: int) -> Slot:
        base = index * self.layout.stride
        forms = zip(self.layout.offsets, self.layout.shapes, self.layout.dtypes, strict=True)
        return tuple(self._tensor(base + offset, shape, dtype) for offset, shape, dtype in forms)

    def _tensor(self, offset: int, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self.memory, dtype=kind, count=count, offset=offset).view(shape)

    def sample(self, device: str) -> list[torch.Tensor]:
        """Return private copies of slot 0 on ``device``, for capturing and warming up."""
        return [tensor.clone().to(device) for tensor in self.slots[0]]
