"""The C++ compiler: its path, its flags, and a key that identifies its work."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import cache
from pathlib import Path

from pytest_passbench.kernels.errors import CompileError

INCLUDE = Path(__file__).with_name("include")
COMPILERS = ("g++", "clang++", "c++")
# ISO mode (-std=c++17) would switch contraction to fma off, so a flag switches it on. -ffast-math is left out: it
# gives up NaN, infinities and the order of sums, and thus agreement with eager at t = -5.
BASE_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-fopenmp-simd", "-Wno-psabi", "-shared", "-fPIC"),
)


def options(flags: tuple[str, ...], *, openmp: bool) -> tuple[str, ...]:
    """Return the flags of a kernel: :data:`BASE_FLAGS`, then its own."""
    return (*BASE_FLAGS, *(("-fopenmp",) if openmp else ()), *flags)


def compiler() -> str:
    """Return the real path of $CXX; if it is not set, of the first known compiler that is installed.

    Raises :class:`CompileError` if there is no such program.
    """
    command = os.environ.get("CXX")
    for name in [command] if command else COMPILERS:
        if path := shutil.which(name):
            return os.path.realpath(path)
    if command:
        raise CompileError(f"names {command!r}, which is no program", where="$CXX", remedy="name a compiler")
    raise CompileError("no C++ compiler found", where="$CXX", remedy="install g++ or clang++, or set CXX")


def key(source: str, options: tuple[str, ...], compiler: str) -> str:
    """Return a hash of everything that determines the compiler's output.

    The compiler is identified by its file, without running it, since a process that loads a cached kernel may
    be forbidden to start another.
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
    """Return the CPU's model and features, which -march=native compiles for."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return "\n".join(
        line for line in lines if line.split("\t")[0].rstrip() in ("model name", "flags", "Features", "CPU part")
    )
