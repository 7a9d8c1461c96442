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
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from pytest_passbench.errors import UserError

CACHE_VARIABLE = "PASSBENCH_KERNEL_CACHE"
INCLUDE = Path(__file__).with_name("include")
COMPILERS = ("g++", "clang++", "c++")
# ISO mode (-std=c++17) would switch contraction to fma off; -ffast-math is left out because it gives up
# NaN, infinities and the order of sums, and with them agreement with eager at t = -5.
BASE_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-fopenmp-simd", "-Wno-psabi", "-shared", "-fPIC"),
)
_void_p = ctypes.c_void_p
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_EXPORT = re.compile(
    r'extern\s+"C"\s+(?P<ret>[\w\s:]+?[\s*]+)(?P<name>\w+)\s*\((?P<params>[^()]*)\)\s*(?:noexcept\s*)?\{'
)
_QUALIFIER = re.compile(r"\b(const|volatile|std::|unsigned)\b|std::")


class CompileError(UserError):
    """The compiler rejected a source, or there is no compiler; ``.what`` carries its message."""


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
    **{"void": None, "double": ctypes.c_double, "float": ctypes.c_float, "bool": ctypes.c_bool},
    **{"int": ctypes.c_int, "long": ctypes.c_long, "size_t": ctypes.c_size_t, "pb::dtype": DType},
    **{"pb::in": Pointer, "pb::out": Pointer},
    **{f"int{bits}_t": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}


class Library:
    """A source: each of its ``extern "C"`` functions is an attribute, typed as it was declared.

    Tensors go to pointer parameters (checked: on the CPU and contiguous), Python numbers to the others. An
    argument that does not fit raises ``ctypes.ArgumentError`` with its position. The source is compiled, or found
    in the cache, when a function is first asked for: of a candidate's many kernels a graph needs few.
    """

    def __init__(self, source: str, options: tuple[str, ...]) -> None:
        self._source, self._options = source, options
        self._exports = {name: (result, parameters) for name, result, parameters in _exports(source)}

    @cached_property
    def path(self) -> Path:
        """The compiled library. Raises :class:`CompileError`."""
        compiler = _compiler()
        name = f"{_key(self._source, self._options, compiler)}.so"
        folders = _cache_folders()
        built = next((folder / name for folder in folders if (folder / name).is_file()), None)
        return built or _build(self._source, self._options, compiler, _writable(folders) / name)

    def build(self) -> Library:
        """Compile now. Raises :class:`CompileError`."""
        library = ctypes.CDLL(str(self.path))
        for name, (result, parameters) in self._exports.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
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
    return Library(source, (*BASE_FLAGS, *(("-fopenmp",) if openmp else ()), *flags))


def _exports(source: str) -> Iterator[tuple[str, Any, list[Any]]]:
    """Name, result and parameter types of every ``extern "C"`` function that ``source`` defines."""
    for match in _EXPORT.finditer(_COMMENT.sub(" ", source)):
        name, params = match["name"], match["params"].strip()
        declared = (
            [] if params in ("", "void") else [p.rsplit(None, 1)[0] + "*" * p.count("*") for p in params.split(",")]
        )
        yield name, _ctype(match["ret"], name, result=True), [_ctype(d, name) for d in declared]


def _ctype(declared: str, function: str, *, result: bool = False) -> Any:
    """The ctypes type of a C++ type as written."""
    if "*" in declared or "[" in declared:
        return ctypes.c_void_p if result else Pointer
    plain = " ".join(_QUALIFIER.sub(" ", declared).split())
    if plain not in _TYPES or (plain == "void" and not result):
        raise CompileError(
            f"{function}: no way to pass a {declared.strip()!r} from Python",
            remedy=f"use a pointer or one of {', '.join(_TYPES)}",
        )
    return _TYPES[plain]


def _compiler() -> str:
    """The real path of $CXX or of the first compiler found."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return os.path.realpath(found)
    raise CompileError("no C++ compiler found", where="$CXX", remedy="install g++ or clang++, or set CXX")


def _key(source: str, options: tuple[str, ...], compiler: str) -> str:
    """Hash of all that decides what the compiler makes.

    The compiler is known by its file, not by running it: where a cached kernel is loaded, starting a process
    may be forbidden.
    """
    state = Path(compiler).stat()
    digest = hashlib.sha256(_cpu().encode())
    for part in (source, *options, compiler, str(state.st_size), str(state.st_mtime_ns), _header()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]


@cache
def _header() -> str:
    return "".join(path.read_text() for path in sorted(INCLUDE.glob("*.h")))


@cache
def _cpu() -> str:
    """The CPU's model and features, which -march=native compiles for."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return "\n".join(
        line for line in lines if line.split("\t")[0].rstrip() in ("model name", "flags", "Features", "CPU part")
    )


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
