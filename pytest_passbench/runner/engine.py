"""The engine: a native library of the judge that executes a plan's steps, and all calls of a block, without Python.

A zygote loads it, so all arms have it at the same address. If it cannot be compiled or loaded, Python executes the
plans.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int64


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
        library: Any = ctypes.PyDLL(path)  # its calls keep Python's lock (GIL), since no other thread needs it
        #: The address of a kernel that does nothing, whatever its arguments.
        self.nothing = int(ctypes.cast(library.passbench_nothing, _POINTER).value or 0)
        self._function = library.passbench_function
        self._function.argtypes, self._function.restype = (_POINTER,), ctypes.py_object
        #: Make the given number of calls of a block. Return 0 if memory cannot be allocated.
        self.block = library.passbench_block
        self.block.argtypes, self.block.restype = (_POINTER, ctypes.c_int64), ctypes.c_int
        #: From now on, write a kernel's signal to four words at an address. Return 0 if no handler can be installed.
        self.note_faults = library.passbench_note_faults
        self.note_faults.argtypes, self.note_faults.restype = (_POINTER,), ctypes.c_int

    def function(self, plan: PlanFields) -> Callable[..., None]:
        """Return a function that executes a plan. Its arguments are the addresses for the registers from 1 on.

        ``plan`` has to live as long as the function.
        """
        function: Callable[..., None] = self._function(ctypes.addressof(plan))
        return function


_loaded: list[Engine] = []


def load(path: str) -> None:
    """Load the engine for this process and its forks. Do nothing if it does not load."""
    with contextlib.suppress(OSError):
        _loaded.append(Engine(path))


def loaded() -> Engine | None:
    """Return the engine of this process, or None if none was loaded."""
    return _loaded[-1] if _loaded else None
