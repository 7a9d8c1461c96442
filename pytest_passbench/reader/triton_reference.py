"""References to Triton kernels, as a reader sends them: the place of the text, and the values of outer names.

A reference is a claim. The judge's side reads the text itself, and treats the values as data.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


def reference_of(kernel: Any, root: Path) -> dict[str, Any]:
    """Return ``{"file", "name", "line", "values", "functions"}`` of a kernel, which may be autotuned.

    Raises TypeError for an object that is not a Triton kernel. Raises ValueError if the kernel's text is in no Python
    file below ``root``.
    """
    references = _References(root)
    main = references.describe(function_of(kernel))
    return {**main, "functions": references.functions}


def function_of(kernel: Any) -> FunctionType:
    """Return the Python function below ``triton.jit``, ``autotune`` and ``heuristics``. Raises TypeError."""
    while not isinstance(kernel, FunctionType):
        inner = getattr(kernel, "fn", None)
        if inner is None:
            raise TypeError(f"a {type(kernel).__name__} is not a Triton kernel")
        kernel = inner
    return kernel


class _References:
    """The functions met so far. Each is described once."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._index: dict[FunctionType, int] = {}
        self.functions: list[dict[str, Any]] = []

    def describe(self, function: FunctionType) -> dict[str, Any]:
        code = function.__code__
        path = Path(code.co_filename).resolve()
        if not self._has(path):
            raise ValueError(f"the text of the Triton kernel {function.__name__} is in no file of the candidate")
        file = path.relative_to(self._root).as_posix()
        values = {name: self._value(value) for name, value in _outer_values(function).items()}
        return {"file": file, "name": function.__qualname__, "line": code.co_firstlineno, "values": values}

    def _value(self, value: Any) -> Any:
        from triton.language import constexpr, dtype
        from triton.runtime.jit import KernelInterface

        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        if isinstance(value, KernelInterface) and self._is_ours(value):
            return {"kernel": self._function(function_of(value))}
        if isinstance(value, constexpr):
            return {"constexpr": self._value(value.value)}
        if type(value) is tuple:
            return [self._value(item) for item in value]
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        return _member(value, dtype) or {"unsupported": type(value).__name__}

    def _is_ours(self, kernel: Any) -> bool:
        """Return True if a kernel's text is in the candidate's folder. Triton's own ``tl.sum`` is a kernel too."""
        return self._has(Path(function_of(kernel).__code__.co_filename).resolve())

    def _has(self, path: Path) -> bool:
        return path.is_relative_to(self._root) and path.suffix == ".py" and path.is_file()

    def _function(self, function: FunctionType) -> int:
        if function not in self._index:
            index = self._index[function] = len(self.functions)
            self.functions.append({})
            self.functions[index] = self.describe(function)
        return self._index[function]


def _outer_values(function: FunctionType) -> Mapping[str, Any]:
    """Return the values of a function's global and enclosing names. A name without a value is left out."""
    code, names = function.__code__, function.__globals__
    values = {name: names[name] for name in code.co_names if name in names}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the name has no value yet
            values[name] = cell.cell_contents
    return values


def _member(value: Any, dtype: type) -> dict[str, str] | None:
    """Return the module and name of a member of Triton or ``math`` that was imported by itself, or else None."""
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    if isinstance(value, dtype):
        names = [name for name, member in vars(tl).items() if isinstance(member, dtype) and member == value]
        return {"tl": names[0]} if names else None
    modules = {"tl": tl, "tl.math": tl.math, "libdevice": libdevice, "triton": triton, "math": math}
    for key, module in modules.items():
        for name, member in vars(module).items():
            if member is value and not name.startswith("_"):
                return {key: name}
    return None
