"""The engine: native code of the judge's that makes a plan's steps, and all calls of a block, without Python.

A zygote loads it, so all arms have it at the same address. Where it cannot be compiled or loaded, plans run in
Python.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int64
#: Of torch's C interface: the structure ``Torch`` of engine.cpp.
_TORCH = (
    "aoti_torch_create_tensor_from_blob", "aoti_torch_call_dispatcher", "aoti_torch_delete_tensor_object",
    "aoti_torch_get_data_ptr", "aoti_torch_get_sizes", "aoti_torch_get_strides", "torch_new_list_reserve_size",
    "torch_list_push_back", "torch_new_stable_ivalue",
)  # fmt: skip


class PlanFields(ctypes.Structure):
    """The structure ``Plan`` of engine.cpp."""

    _fields_ = (
        ("steps", _POINTER),
        ("end", _POINTER),
        ("registers", _POINTER),
        ("contents", _POINTER),
        ("contents_size", _WORD),
        ("lasting", _POINTER),
        ("lasting_count", _WORD),
        ("lasting_used", _WORD),
        ("entry", _POINTER),
        ("tensors", _POINTER),
        ("lasting_tensors", _POINTER),
        ("lasting_tensor_count", _WORD),
    )


class BlockFields(ctypes.Structure):
    """The structure ``Block`` of engine.cpp."""

    _fields_ = (
        ("plan", PlanFields),
        ("inputs", _POINTER),
        ("stride", _WORD),
        ("offsets", _POINTER),
        ("input_count", _WORD),
        ("entries", _POINTER),
    )


class Engine:
    """The loaded library. Raises OSError if ``path`` cannot be loaded."""

    def __init__(self, path: str) -> None:
        library: Any = ctypes.PyDLL(path)  # it keeps Python's lock, as nothing else runs
        #: The address of a kernel that does nothing, whatever its arguments.
        self.nothing = int(ctypes.cast(library.passbench_nothing, _POINTER).value or 0)
        self._function = library.passbench_function
        self._function.argtypes, self._function.restype = (_POINTER,), ctypes.py_object
        functions = _torch_functions()
        #: True if it can call operators of torch's.
        self.operates = functions is not None
        if functions is not None:
            library.passbench_use_torch(functions)
        #: Make so many calls of a block. Return 0 if there is no memory, -1 if an operator fails.
        self.block = library.passbench_block
        self.block.argtypes, self.block.restype = (_POINTER, ctypes.c_int64), ctypes.c_int
        #: Have a kernel's signal noted in four words at this address. Return 0 if the handlers are refused.
        self.note_faults = library.passbench_note_faults
        self.note_faults.argtypes, self.note_faults.restype = (_POINTER,), ctypes.c_int

    def function(self, plan: PlanFields) -> Callable[..., None]:
        """Return a function that executes a plan. Its arguments are the addresses for the registers from 1 on.

        ``plan`` has to live as long as the function.
        """
        function: Callable[..., None] = self._function(ctypes.addressof(plan))
        return function


def _torch_functions() -> Any:
    """Return the addresses of torch's functions. Return None if this version of torch lacks one of them."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        addresses = [ctypes.cast(library[name], _POINTER).value for name in _TORCH]
    except (OSError, AttributeError):
        return None
    return (_POINTER * len(addresses))(*addresses)


_loaded: list[Engine] = []


def load(path: str) -> None:
    """Load the engine for this process and its forks. Do nothing if it does not load."""
    with contextlib.suppress(OSError):
        _loaded.append(Engine(path))


def loaded() -> Engine | None:
    """Return this process's engine, if there is one."""
    return _loaded[-1] if _loaded else None
