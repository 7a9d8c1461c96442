"""Reads outputs from a stopped runner's memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.plurals import counted
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.plans.launch import Form
from pytest_passbench.protocol import (
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

MAX_BYTES = 4 << 30  # of an output
MAX_ELEMENTS = 1 << 40  # of an output, empty dimensions counted as 1, so that torch's own sums do not overflow


@dataclass(frozen=True)
class OutputForm:
    """The form of an output as the runner states it.

    ``kind`` is one of the protocol's. ``count`` is the number of outputs if that was wrong. Strides are in elements.
    """

    kind: int
    dtype: str
    device: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int = 0

    def like(self, other: OutputForm) -> bool:
        """Return True if the two differ at most in strides that have no effect."""
        a, b = ((form.kind, form.dtype, form.device, form.shape, form.steps) for form in (self, other))
        return a == b

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides that have an effect: those of dimensions greater than 1, if there are elements."""
        if 0 in self.shape:
            return ()
        return tuple(stride for size, stride in zip(self.shape, self.strides, strict=True) if size > 1)

    @property
    def span(self) -> int:
        """The bytes from the first element in memory to the end of the last one; 0 if it is empty."""
        return Form(self.dtype, self.shape, self.strides).nbytes

    def describe(self) -> str:
        """Return the form in words, for a message."""
        if self.kind == KIND_TENSOR:
            return f"a {self.dtype} tensor of shape {list(self.shape)} on {self.device}"
        if self.kind == KIND_COUNT:
            return counted(self.count, "output") if self.count >= 0 else "no tuple of outputs"
        return "a number" if self.kind == KIND_SCALAR else "an object that is not a plain tensor"


#: Stands for a form in a runner's table that is not possible.
NO_FORM = OutputForm(kind=-1, dtype="", device="", shape=(), strides=())


@dataclass(frozen=True)
class Output:
    """An output of a call: its form, its address in the runner, and its value (None if it is not a tensor)."""

    form: OutputForm
    address: int
    value: torch.Tensor | None


def read_call(runner: Runner, call: int, like: Sequence[Output] = ()) -> list[Output]:
    """Return the outputs of call number ``call`` of the last block. Raises ArmFailure if they can't be read.

    With ``like`` (eager's outputs), only values of eager's form are read. So the forms that an arm states can't make
    the judge allocate more memory than eager's outputs take.
    """
    places = stated(runner, call)
    copies = runner.fetch(call)  # only now, since the forms that were stated within the block count
    expected = [output.form for output in like] if like else [None] * len(places)
    return [
        _output(runner, address, form, copies[i] if copies else None, expected[i])
        for i, (address, form) in enumerate(places)
    ]


def stated(runner: Runner, call: int, forms: bytes | None = None) -> list[tuple[int, OutputForm]]:
    """Return the address and the form of each output of a call, as the runner states them. Raises ArmFailure.

    ``forms`` is the table of :func:`read_forms`, if it was read for another call of the block.
    """
    width = runner.hello["width"]
    size = ENTRY.size * width
    entries = runner.memory(runner.hello["entries"] + call * size, size)
    forms = read_forms(runner) if forms is None else forms
    return [(address, form_at(forms, index)) for address, index in ENTRY.iter_unpack(entries)]


def output_table(runner: Runner, calls: int) -> bytes:
    """Return the addresses and the numbers of the forms of a block's outputs. Raises ArmFailure."""
    return bytes(runner.memory(runner.hello["entries"], ENTRY.size * runner.hello["width"] * calls))


def read_forms(runner: Runner) -> bytes:
    """Return the runner's table of forms, for :func:`form_at`. Raises ArmFailure if it can't be read."""
    return bytes(runner.memory(runner.hello["forms"], FORM.size * MAX_FORMS))


def form_at(forms: bytes, index: int) -> OutputForm:
    """Return form number ``index`` of a table. Raises ArmFailure if the table has fewer."""
    if index >= MAX_FORMS:
        raise ArmFailure("type_mismatch", "read", "outputs of too many different forms")
    return _form(forms[index * FORM.size : (index + 1) * FORM.size])


def _output(runner: Runner, address: int, form: OutputForm, copy: int | None, expected: OutputForm | None) -> Output:
    readable = form.kind == KIND_TENSOR and (form.device == "cpu" or copy is not None)
    if not readable or (expected is not None and not form.like(expected)):
        return Output(form, address, None)
    size, dtype = form.span, getattr(torch, form.dtype)
    if size > MAX_BYTES:
        raise ArmFailure("type_mismatch", "read", f"an output that spans {size} bytes")
    if size == 0:
        return Output(form, address, torch.empty(form.shape, dtype=dtype))
    flat = torch.frombuffer(runner.memory(address if copy is None else copy, size), dtype=dtype)
    return Output(form, address, flat.as_strided(form.shape, form.strides))


@functools.lru_cache(maxsize=256)
def _form(data: bytes) -> OutputForm:
    fields = FORM.unpack(data)
    kind, dtype, device, dims = fields[:4]
    if kind != KIND_TENSOR:
        return OutputForm(kind, "", "", (), (), count=dims)
    if not (0 <= dtype < len(DTYPES) and 0 <= device < len(DEVICES) and 0 <= dims <= MAX_DIMS):
        return NO_FORM
    sizes = fields[4 : 4 + dims]
    strides = fields[4 + MAX_DIMS : 4 + MAX_DIMS + dims]
    if min((*sizes, *strides, 0)) < 0 or math.prod(max(size, 1) for size in sizes) > MAX_ELEMENTS:
        return NO_FORM
    return OutputForm(kind, DTYPES[dtype], DEVICES[device], sizes, strides)
