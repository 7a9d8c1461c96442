"""Tables of a block's outputs. The judge reads them from the measured process's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from pytest_passbench.protocol import (
    DEVICES,
    DTYPES,
    ENTRY,
    FORM,
    KIND_COUNT,
    KIND_OTHER_TYPE,
    KIND_SCALAR,
    KIND_TENSOR,
    MAX_DIMS,
    MAX_FORMS,
    MAX_OUTPUTS,
    TEXT_BYTES,
)

_DTYPE_CODE = {getattr(torch, name): code for code, name in enumerate(DTYPES)}
_DEVICE_CODE = {name: code for code, name in enumerate(DEVICES)}


class OutputTables:
    """The tables of a block, and an error text.

    There is an entry per output and call, and a form per distinct dtype, shape and strides.
    """

    def __init__(self, calls: int, width: int) -> None:
        self.width = min(width, MAX_OUTPUTS)
        self.entries = bytearray(ENTRY.size * calls * self.width)
        self.forms = bytearray(FORM.size * MAX_FORMS)
        self.text = bytearray(TEXT_BYTES)
        self._indices: dict[Any, int] = {}

    def addresses(self) -> dict[str, int]:
        """Return the addresses of the tables, and the number of outputs of a call (``width``)."""
        return {
            "entries": _address(self.entries),
            "forms": _address(self.forms),
            "text": _address(self.text),
            "width": self.width,
        }

    def write(self, results: Sequence[Any]) -> None:
        """Write an entry for each output of each call of a block."""
        pack, indices, width, offset = ENTRY.pack_into, self._indices, self.width, 0
        for outputs in results:
            if type(outputs) is not tuple or len(outputs) != width:
                self._wrong_count(outputs, offset)
                offset += ENTRY.size * width
                continue
            for output in outputs:
                if type(output) is torch.Tensor:
                    key = (output.dtype, output.shape, output.stride(), output.device.type)
                    form = indices.get(key)
                    if form is None:
                        form = self._form(key, KIND_TENSOR)
                    pack(self.entries, offset, output.data_ptr(), form)
                else:
                    pack(self.entries, offset, *self._not_a_tensor(output))
                offset += ENTRY.size

    def tensor_form(self, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
        """Return the index of the form of a tensor on the CPU."""
        return self._form((dtype, torch.Size(shape), strides, "cpu"), KIND_TENSOR)

    def _wrong_count(self, outputs: Any, offset: int) -> None:
        count = len(outputs) if isinstance(outputs, tuple) else -1
        form = self._form((KIND_COUNT, count), KIND_COUNT, dims=count)
        for column in range(self.width):
            ENTRY.pack_into(self.entries, offset + column * ENTRY.size, 0, form)

    def _not_a_tensor(self, output: Any) -> tuple[int, int]:
        if isinstance(output, bool | int):
            return int(output) & 0xFFFFFFFFFFFFFFFF, self._form(KIND_SCALAR, KIND_SCALAR)
        return 0, self._form(KIND_OTHER_TYPE, KIND_OTHER_TYPE)

    def _form(self, key: Any, kind: int, dims: int = 0) -> int:
        if key in self._indices:
            return self._indices[key]
        index = min(len(self._indices), MAX_FORMS - 1)
        sizes = [0] * (2 * MAX_DIMS)
        dtype = device = -1
        if kind == KIND_TENSOR:
            dtype, device = _DTYPE_CODE.get(key[0], -1), _DEVICE_CODE.get(key[3], -1)
            dims = len(key[1])
            rank = min(dims, MAX_DIMS)
            sizes[:rank], sizes[MAX_DIMS : MAX_DIMS + rank] = key[1][:rank], key[2][:rank]
        FORM.pack_into(self.forms, index * FORM.size, kind, dtype, device, dims, *sizes)
        self._indices[key] = index
        return index

    def say(self, text: str) -> None:
        """Write an error text for the judge. It is cut to ``TEXT_BYTES``."""
        data = text.encode("utf-8", "replace")[: TEXT_BYTES - 1] + b"\0"
        self.text[: len(data)] = data


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer else 0
