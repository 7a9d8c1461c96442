"""Reading a stopped runner's outputs out of its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..protocol import (
    DEVICES,
    DTYPES,
    ENTRY,
    FORM,
    KIND_COUNT,
    KIND_SCALAR,
    KIND_TENSOR,
    MAX_DIMS,
    MAX_FORMS,
)
from .failures import ArmFailure
from .runner import Runner

MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class Form:
    """What an output claims to be. ``kind`` is one of the protocol's; ``count`` only where that was wrong."""

    kind: int
    dtype: str
    device: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int = 0

    def describe(self) -> str:
        """For a message."""
        if self.kind == KIND_TENSOR:
            return f"a {self.dtype} tensor of shape {list(self.shape)} on {self.device}"
        if self.kind == KIND_COUNT:
            return f"{self.count} outputs" if self.count >= 0 else "no tuple of outputs"
        return "a number" if self.kind == KIND_SCALAR else "an object that is no plain tensor"


@dataclass(frozen=True)
class Output:
    """One output of one call: its form, its address in the runner, and its value (None for another kind)."""

    form: Form
    address: int
    value: torch.Tensor | None


def read_call(runner: Runner, call: int) -> list[Output]:
    """The outputs of call number ``call`` of the last block. Raises ArmFailure where they can't be read."""
    width = runner.hello["width"]
    size = ENTRY.size * width
    entries = runner.memory(runner.hello["entries"] + call * size, size)
    forms = bytes(runner.memory(runner.hello["forms"], FORM.size * MAX_FORMS))
    copies = runner.fetch(call)  # what was said of the outputs within the block counts, so it is read before
    return [
        _output(runner, ENTRY.unpack_from(entries, i * ENTRY.size), forms, copies[i] if copies else None)
        for i in range(width)
    ]


def _output(runner: Runner, entry: tuple[int, ...], forms: bytes, copy: int | None) -> Output:
    address, index = entry
    if index >= MAX_FORMS:
        raise ArmFailure("type_mismatch", "read", "outputs of too many different forms")
    form = _form(FORM.unpack_from(forms, index * FORM.size))
    if form.kind == KIND_SCALAR:
        return Output(form, address, None)
    readable = form.kind == KIND_TENSOR and (form.device == "cpu" or copy is not None)
    value = _value(runner, address if copy is None else copy, form) if readable else None
    return Output(form, address, value)


def _form(fields: tuple[int, ...]) -> Form:
    kind, dtype, device, dims = fields[:4]
    if kind != KIND_TENSOR:
        return Form(kind, "", "", (), (), count=dims)
    if not (0 <= dtype < len(DTYPES) and 0 <= device < len(DEVICES) and 0 <= dims <= MAX_DIMS):
        return Form(kind=-1, dtype="", device="", shape=(), strides=())
    sizes = fields[4 : 4 + dims]
    strides = fields[4 + MAX_DIMS : 4 + MAX_DIMS + dims]
    return Form(kind, DTYPES[dtype], DEVICES[device], sizes, strides)


def _value(runner: Runner, address: int, form: Form) -> torch.Tensor:
    dtype = getattr(torch, form.dtype)
    if math.prod(form.shape) == 0:
        return torch.empty(form.shape, dtype=dtype)
    if min((*form.shape, *form.strides, 0)) < 0:
        raise ArmFailure("type_mismatch", "read", "an output with negative sizes")
    extent = 1 + sum((size - 1) * stride for size, stride in zip(form.shape, form.strides, strict=True))
    nbytes = extent * torch.empty((), dtype=dtype).element_size()
    if nbytes > MOST_BYTES:
        raise ArmFailure("type_mismatch", "read", f"an output that spans {nbytes} bytes")
    flat = torch.frombuffer(runner.memory(address, nbytes), dtype=dtype)
    return flat.as_strided(form.shape, form.strides)
