"""A C++ kernel compiled in well under a second and launched by pointer.

    lib = cpp.load('''
    #include "passbench.h"
    extern "C" void scale(const float* x, float* out, int64_t n, double by) {
      for (int64_t i = 0; i < n; i++) out[i] = x[i] * float(by);
    }''')
    lib.scale(x, out, x.numel(), 2.0)

No header of torch's is involved: that is what makes a build take a fraction of a second. A launch costs about
2 us. See docs/kernels.md, and include/passbench.h for what a source can include.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.errors import CompileError
from pytest_passbench.kernels.toolchain import BASE_FLAGS, INCLUDE

CACHE_VARIABLE = "PASSBENCH_KERNEL_CACHE"
_void_p = ctypes.c_void_p
__all__ = ["BASE_FLAGS", "CACHE_VARIABLE", "INCLUDE", "CompileError", "DType", "Library", "Pointer", "load"]


class Pointer:
    """What a pointer parameter accepts: a contiguous CPU tensor, an address, or None (a null pointer)."""

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_void_p:
        """The address of ``value``; TypeError for anything that a kernel could not read as plain memory."""
        if value.__class__ is int:
            return _void_p(value)
        try:
            if value.is_cpu and value.is_contiguous():
                return _void_p(value.data_ptr())
        except AttributeError:
            return cls._no_tensor(value)
        if not value.is_cpu:
            raise TypeError(f"a tensor on {value.device}: a C++ kernel reads the CPU's memory")
        raise TypeError(
            f"a tensor of shape {tuple(value.shape)} and strides {value.stride()} is not contiguous"
            " (pass x.data_ptr() and hand the strides to the kernel)"
        )

    @staticmethod
    def _no_tensor(value: Any) -> ctypes.c_void_p:
        if value is None:
            return _void_p(None)
        raise TypeError(f"a tensor, an address or None is needed here, not {type(value).__name__}")


class DType:
    """What a ``pb::dtype`` parameter accepts: a ``torch.dtype`` that passbench.h knows."""

    names = ("float32", "bfloat16", "float16")
    _codes: ClassVar[dict[Any, ctypes.c_int32]] = {}

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_int32:
        """The code of ``value`` in ``pb::dtype``; TypeError for any other type."""
        try:
            return cls._codes[value]
        except KeyError:
            name = str(value).removeprefix("torch.")
        if name not in cls.names:
            raise TypeError(f"{value} is not one of torch.{', torch.'.join(cls.names)}")
        return cls._codes.setdefault(value, ctypes.c_int32(cls.names.index(name)))


_TYPES: dict[str, Any] = {
    **{signatures.VOID: None, signatures.POINTER: Pointer, signatures.DTYPE: DType},
    **{"float64": ctypes.c_double, "float32": ctypes.c_float, "bool": ctypes.c_bool},
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}


class Library:
    """A source: each of its ``extern "C"`` functions is an attribute, typed as it was declared.

    Tensors go to pointer parameters (checked: on the CPU and contiguous), Python numbers to the others. An
    argument that does not fit raises ``ctypes.ArgumentError`` with its position. The source is compiled, or found
    in the cache, when a function is first asked for: of a candidate's many kernels a graph needs few.
    """

    def __init__(self, source: str, options: tuple[str, ...]) -> None:
        self._source, self._options = source, options
        self._exports = signatures.parse(source)

    @cached_property
    def path(self) -> Path:
        """The compiled library. Raises :class:`CompileError`."""
        compiler = toolchain.compiler()
        name = f"{toolchain.key(self._source, self._options, compiler)}.so"
        folders = _cache_folders()
        built = next((folder / name for folder in folders if (folder / name).is_file()), None)
        return built or _build(self._source, self._options, compiler, _writable(folders) / name)

    def build(self) -> Library:
        """Compile now. Raises :class:`CompileError`."""
        library = ctypes.CDLL(str(self.path))
        for name, signature in self._exports.items():
            function = getattr(library, name)
            function.restype = _void_p if signature.result == signatures.POINTER else _TYPES[signature.result]
            function.argtypes = [_TYPES[kind] for kind in signature.parameters]
            setattr(self, name, function)
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._exports:
            have = ", ".join(self._exports) or "none"
            raise AttributeError(
                f'the source has no function written as `extern "C" ... {name}(...) {{` (it has: {have})'
            )
        function: Callable[..., Any] = vars(self.build())[name]
        return function


@cache
def load(source: str, *, flags: tuple[str, ...] = (), openmp: bool = False) -> Library:
    """A kernel library of ``source``, compiled when first used (or by ``.build()``).

    ``flags`` are added after :data:`BASE_FLAGS`; ``openmp`` adds -fopenmp. The cache is keyed by content: source,
    passbench.h, flags, compiler and CPU. Raises :class:`CompileError` for a parameter that Python cannot pass; what
    the compiler has to say comes when it runs.
    """
    return Library(source, toolchain.options(flags, openmp=openmp))


def _cache_folders() -> list[Path]:
    """Where kernels may lie: $PASSBENCH_KERNEL_CACHE or else the user's cache, then the temporary folder.

    A sandbox may have the first read-only, or no home at all. A folder that others can write is left out,
    since what lies in it is loaded; a folder named by the variable is its user's choice.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache")
    chosen = os.environ.get(CACHE_VARIABLE)
    own = [home / "passbench" / "kernels", Path(tempfile.gettempdir()) / f"passbench-kernels-{os.getuid()}"]
    if chosen:
        return [Path(chosen), *filter(_is_private, own[1:])]
    return [folder for folder in own if _is_private(folder)]


def _is_private(folder: Path) -> bool:
    """Does only this user write here (or is it still to be made)?"""
    try:
        state = folder.lstat()
    except OSError:
        return True
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def _writable(folders: list[Path]) -> Path:
    """The first folder that can be written, made if need be."""
    problems = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            problems.append(str(error))
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
        problems.append(f"{folder} is not writable")
    what = f"no folder for compiled kernels: {'; '.join(problems) or 'others can write to all of them'}"
    raise CompileError(what, where=f"${CACHE_VARIABLE}", remedy="name a folder that can be written")


def _build(source: str, options: tuple[str, ...], compiler: str, target: Path) -> Path:
    """Compile into a file of our own, then rename: of two processes that race, either result is right."""
    handle, scratch = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        command = [compiler, *options, f"-I{INCLUDE}", "-x", "c++", "-", "-o", scratch]
        plain = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False, env=plain)
        if done.returncode:
            raise CompileError(f"{Path(compiler).name} failed:\n{done.stderr.strip()}", where="kernel source")
        Path(scratch).rename(target)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return target
