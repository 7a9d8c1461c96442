"""Tensors for a recording: of the requested layout, with random values, on the CPU.

A wrapper for a CUDA device sees its arguments on that device. Attributes and functions that state a device answer as
they would there.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.plans.launch import ITEM_BYTES, Argument, Request
from pytest_passbench.plans.values import decode

_MAX_RANDOM_BYTES = 1 << 20  # at the beginning of a tensor; the rest is zero
_LINE_BYTES = 64  # of a cache line
_READERS = frozenset({
    "numpy", "tolist", "item", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__",
    "__dlpack__", "__contains__",
})  # fmt: skip


def make(request: Request, chance: random.Random) -> tuple[list[torch.Tensor], list[Any]]:
    """Return the tensors of a request, each in memory of its own, and the wrapper's decoded arguments."""
    tensors = [_tensor(argument, chance) for argument in request.tensors]
    special = lambda _tag, index: tensors[index]  # noqa: E731 - the request was checked: the tag is "tensor"
    return tensors, [decode(value, special) for value in request.arguments]


def _tensor(argument: Argument, chance: random.Random) -> torch.Tensor:
    form, item, dtype = argument.form, ITEM_BYTES[argument.form.dtype], getattr(torch, argument.form.dtype)
    memory = torch.zeros(form.nbytes + _LINE_BYTES * (4 + chance.randrange(64)), dtype=torch.uint8)
    start = -memory.data_ptr() % _LINE_BYTES + _LINE_BYTES + argument.misaligned
    start += -start % item  # a storage's offset counts whole elements
    count = min(form.nbytes, _MAX_RANDOM_BYTES) // item
    if count:
        generator = torch.Generator().manual_seed(chance.getrandbits(62))
        values = torch.rand(count, generator=generator)
        numbers = values if dtype.is_floating_point or dtype.is_complex else (2 * values).floor()
        memory[start : start + count * item].view(dtype).copy_(numbers)
    whole = torch.empty(0, dtype=dtype)
    return whole.set_(memory.untyped_storage(), start // item, form.shape, form.strides)


class Device(TorchFunctionMode):
    """A mode in which tensors and factories answer as on ``device``. Reading values raises Rejected."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _READERS:
            raise plan_refused("value", f"reads a tensor's values (.{name})")
        if name == "__repr__":
            return f"tensor of shape {tuple(args[0].shape)}"
        if self._device.type == "cpu":
            return func(*args, **kwargs)
        return self._elsewhere(func, name, args, kwargs)

    def _elsewhere(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        owner = getattr(func, "__self__", None)
        if name == "__get__" and owner is torch.Tensor.device:
            return self._device
        if name == "__get__" and owner in (torch.Tensor.is_cuda, torch.Tensor.is_cpu):
            return owner is torch.Tensor.is_cuda
        if name == "get_device":
            return self._device.index or 0
        if func is torch.device:
            return func(*args, **kwargs)
        if name == "cuda":
            return args[0]
        if name == "cpu" or any(_is_cpu(value) for value in (*args[1:], kwargs.get("device"))):
            raise plan_refused("device", "makes or moves a tensor on another device")
        return func(*(_on_cpu(value) for value in args), **{key: _on_cpu(value) for key, value in kwargs.items()})


def _is_cpu(value: Any) -> bool:
    return value == "cpu" if isinstance(value, str) else isinstance(value, torch.device) and value.type == "cpu"


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "meta":
        return value
    if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
        return torch.device("cpu")
    return value
