"""C++ kernels, compiled in well under a second and launched by pointer.

    lib = cpp.load('''
    #include "passbench.h"
    extern "C" void scale(const float* x, float* out, int64_t n, double by) {
      for (int64_t i = 0; i < n; i++) out[i] = x[i] * float(by);
    }''')
    lib.scale(x, out, x.numel(), 2.0)

A build takes a fraction of a second because no header of torch's is included. A launch costs about 2 us. See
docs/kernels.md, and include/passbench.h for the header that a source can include.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.toolchain import BASE_FLAGS, CACHE_VARIABLE, INCLUDE, CompileError

_void_p = ctypes.c_void_p
__all__ = ["BASE_FLAGS", "CACHE_VARIABLE", "INCLUDE", "CompileError", "CppLibrary", "DType", "Pointer", "load"]


class Pointer:
    """The type of a pointer parameter: it takes a contiguous CPU tensor, an address, or None (a null pointer)."""

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_void_p:
        """Return the address of ``value``. Raises TypeError if a kernel could not read it as plain memory."""
        if value.__class__ is int:
            return _void_p(value)
        try:
            if value.is_cpu and value.is_contiguous():
                return _void_p(value.data_ptr())
        except AttributeError:
            if value is None:
                return _void_p(None)
            text = f"a tensor, an address or None is needed here, not {type(value).__name__}"
            raise TypeError(text) from None
        if not value.is_cpu:
            raise TypeError(f"a tensor on {value.device}: a C++ kernel reads the CPU's memory")
        raise TypeError(
            f"a tensor of shape {tuple(value.shape)} and strides {value.stride()} is not contiguous"
            " (pass x.data_ptr() and hand the strides to the kernel)"
        )


class DType:
    """The type of a ``pb::dtype`` parameter: it takes a ``torch.dtype`` that passbench.h knows."""

    names = ("float32", "bfloat16", "float16")
    _codes: ClassVar[dict[Any, ctypes.c_int32]] = {}

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_int32:
        """Return the code of ``value`` in ``pb::dtype``. Raises TypeError for any other dtype."""
        try:
            return cls._codes[value]
        except KeyError:
            name = str(value).removeprefix("torch.")
        if name not in cls.names:
            raise TypeError(f"{value} is not one of torch.{', torch.'.join(cls.names)}")
        return cls._codes.setdefault(value, ctypes.c_int32(cls.names.index(name)))


#: The C type of each kind of parameter or result.
CTYPES: dict[str, Any] = {
    **{signatures.VOID: None, signatures.POINTER: _void_p, signatures.DTYPE: ctypes.c_int32},
    **{"float64": ctypes.c_double, "float32": ctypes.c_float, "bool": ctypes.c_bool},
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}
_PARAMETERS = {**CTYPES, signatures.POINTER: Pointer, signatures.DTYPE: DType}


class CppLibrary:
    """The functions of a source: each ``extern "C"`` function is an attribute, typed as it was declared.

    Pointer parameters take tensors (checked: on the CPU and contiguous), the others take Python numbers. An
    argument that does not fit raises ``ctypes.ArgumentError`` with its position. The source is compiled, or
    found in the cache, when a function is first used, since a graph needs few of a candidate's kernels.
    """

    def __init__(self, source: str, options: tuple[str, ...]) -> None:
        self._source, self._options = source, options
        self._exports = signatures.parse(source)

    @cached_property
    def path(self) -> Path:
        """The compiled library. Raises :class:`CompileError`."""
        compiler = toolchain.compiler()
        name = f"{toolchain.key(self._source, self._options, compiler)}.so"
        folders = toolchain.private()
        built = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if built is None:
            built = toolchain.writable(folders) / name
            command = [compiler, *self._options, f"-I{INCLUDE}", "-x", "c++", "-"]
            toolchain.build(command, built, "kernel source", source=self._source)
        return built

    def build(self) -> CppLibrary:
        """Compile now, and return the library itself. Raises :class:`CompileError`."""
        library = ctypes.CDLL(str(self.path))
        for name, signature in self._exports.items():
            function = getattr(library, name)
            function.restype = CTYPES[signature.result]
            function.argtypes = [_PARAMETERS[kind] for kind in signature.parameters]
            setattr(self, name, function)
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._exports:
            exports = ", ".join(self._exports) or "none"
            raise AttributeError(
                f'the source has no function written as `extern "C" ... {name}(...) {{` (it has: {exports})'
            )
        function: Callable[..., Any] = vars(self.build())[name]
        return function


@cache
def load(source: str, *, flags: tuple[str, ...] = (), openmp: bool = False) -> CppLibrary:
    """Return a kernel library of ``source``, compiled when first used (or by ``.build()``).

    ``flags`` are added after :data:`BASE_FLAGS`; ``openmp`` adds -fopenmp. The key of the cache is a hash of
    source, passbench.h, flags, compiler and CPU. Raises :class:`CompileError` for a parameter that Python
    cannot pass. Errors of the compiler are raised when it runs.
    """
    return CppLibrary(source, toolchain.options(flags, openmp=openmp))
