"""Functions that the generated code of a launch plan calls, and the objects that it uses."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pytest_passbench.plans.launch import TritonType

_libc = ctypes.CDLL(None, use_errno=True)
POOL_ELEMENTS = 1 << 14
RANDOM_PART = 16  # one element of this many has random bits
MAX_SCALE_EXPONENT = 1.0  # the standard deviation of the values is between 1 / 10 and 10


class WrongArgument(RuntimeError):
    """A tensor that a plan cannot be called with.

    Its dtype, layout or alignment is not the recorded one. Or the plan writes to it, and it shares memory with
    another argument.
    """


def filling(plain: Callable[..., torch.Tensor], fill: Callable[[torch.Tensor], None]) -> Callable[..., torch.Tensor]:
    """Return the allocator ``plain`` with a ``fill`` of the memory of each new tensor."""

    def allocate(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        tensor = plain(shape, strides, dtype)
        fill(tensor)
        return tensor

    return allocate


def zero(tensor: torch.Tensor) -> None:
    """Set all bytes of a tensor's memory to zero."""
    if tensor.device.type == "cpu":
        ctypes.memset(tensor.untyped_storage().data_ptr(), 0, tensor.untyped_storage().nbytes())
    else:
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).fill_(0)


def fill_with_ones(tensor: torch.Tensor) -> None:
    """Set all elements of a tensor to one, and what lies between them to zero."""
    zero(tensor)
    tensor.fill_(1)


def allocator(device: str) -> Callable[..., torch.Tensor]:
    """Return a function of (shape, strides, dtype) that allocates a tensor on ``device``."""
    if device == "cpu":
        fast: Callable[..., torch.Tensor] = torch._C._dynamo.guards._empty_strided_cpu
        return fast
    there = torch.device(device)
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=there)


def reinterpret(
    base: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """Return the memory ``offset`` bytes behind the first element of ``base`` as a tensor."""
    start = base.storage_offset() * base.element_size() + offset
    if dtype == base.dtype:
        return torch.as_strided(base, shape, strides, start // base.element_size())
    whole = torch.empty(0, dtype=dtype, device=base.device)
    return whole.set_(base.untyped_storage(), start // whole.element_size(), shape, strides)


def constant_table(content: str, device: str) -> torch.Tensor:
    """Return a constant table. On the CPU its memory is read-only, so that no kernel can keep answers in it."""
    data = bytes.fromhex(content)
    if not data:
        return torch.empty(0, dtype=torch.uint8, device=device)
    memory = mmap.mmap(-1, len(data), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(data)
    table = torch.frombuffer(memory, dtype=torch.uint8)
    if device != "cpu":
        return table.to(device)
    size = len(data) + -len(data) % mmap.PAGESIZE
    if _libc.mprotect(ctypes.c_void_p(table.data_ptr()), ctypes.c_size_t(size), mmap.PROT_READ):
        raise OSError(ctypes.get_errno(), "a constant table cannot be protected")
    return table


def triton_type(value: TritonType) -> Any:
    """Return Triton's dtype of this name. Raises WrongArgument if the installed Triton has none."""
    import triton.language as tl

    dtype = getattr(tl, value.name, None)
    if not isinstance(dtype, tl.dtype):
        raise WrongArgument(f"Triton has no dtype {value.name[:40]!r}")
    return dtype


class Contents:
    """A source of memory contents, drawn from a seed: finite numbers of ordinary size, and some random bits.

    The contents look like an earlier answer. Memory full of one value would tell a kernel that it is audited.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._drawn = torch.Generator().manual_seed(self._chance.getrandbits(63))
        self._scale = 10 ** self._chance.uniform(-MAX_SCALE_EXPONENT, MAX_SCALE_EXPONENT)
        self._pool = cache(self._pool_of)

    def fill(self, tensor: torch.Tensor) -> None:
        """Fill all memory that a tensor's storage has."""
        pool = self._pool(tensor.dtype).to(tensor.device)
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        start = self._chance.randrange(POOL_ELEMENTS) * tensor.element_size()
        turned = pool.roll(start)
        for begin in range(0, whole.numel(), turned.numel()):
            piece = whole[begin : begin + turned.numel()]
            piece.copy_(turned[: piece.numel()])

    def pattern(self, dtype: torch.dtype) -> bytes:
        """Return contents of :data:`POOL_ELEMENTS` elements of ``dtype``."""
        start = self._chance.randrange(POOL_ELEMENTS) * torch.empty(0, dtype=dtype).element_size()
        return bytes(self._pool(dtype).roll(start).numpy())

    def _pool_of(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype is torch.bool:
            return torch.randint(0, 2, (POOL_ELEMENTS,), generator=self._drawn, dtype=torch.uint8)
        size = torch.empty(0, dtype=dtype).element_size()
        bits = torch.randint(0, 256, (POOL_ELEMENTS, size), generator=self._drawn, dtype=torch.uint8)
        if not dtype.is_floating_point:
            return bits.flatten()
        values = (torch.randn(POOL_ELEMENTS, generator=self._drawn) * self._scale).to(dtype)
        rest = bits.view(dtype).flatten().float()
        places = (torch.arange(POOL_ELEMENTS) % RANDOM_PART == 0) & rest.isfinite()
        raw = values.view(torch.uint8).reshape(POOL_ELEMENTS, size)
        return torch.where(places[:, None], bits, raw).flatten()
