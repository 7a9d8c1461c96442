"""The C++ compiler: its path, its flags, a key that identifies its work, and the folders of compiled kernels."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import user_cache

CACHE_VARIABLE = "PASSBENCH_KERNEL_CACHE"

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


def build(
    command: Sequence[str], target: Path, where: str, *, source: str | None = None, timeout: float | None = None
) -> None:
    """Compile in a new folder, then rename to ``target``: if two processes do so at once, either result is right.

    ``source`` is the compiler's input, if that is no file. ``timeout`` is in seconds. Raises :class:`CompileError`,
    which names ``where``.
    """
    plain, name = {**os.environ, "LC_ALL": "C"}, Path(command[0]).name
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            line = [*command, "-o", f"{scratch}/{target.name}"]
            done = subprocess.run(
                line, input=source, capture_output=True, text=True, check=False, env=plain, timeout=timeout
            )
            if done.returncode:
                raise CompileError(f"{name} failed:\n{done.stderr.strip()}", where=where)
            Path(scratch, target.name).rename(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{name} did not run: {error}", where=where) from error


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


class CompileError(UserError):
    """An error of the compiler or of a missing compiler; ``.what`` carries the message."""


def private() -> list[Path]:
    """Return the folders: $PASSBENCH_KERNEL_CACHE or else the user's cache, then one in the temporary folder.

    A sandbox may have the first read-only, or no home at all. A folder that others can write is left out, since
    libraries in it are loaded. A folder named by the variable is not checked: it is its user's choice.
    """
    temporary = Path(tempfile.gettempdir()) / f"passbench-kernels-{os.getuid()}"
    if named := os.environ.get(CACHE_VARIABLE):
        return [Path(named), *filter(is_private, [temporary])]
    cache = user_cache("kernels")
    return [folder for folder in (cache, temporary) if folder is not None and is_private(folder)]


def is_private(folder: Path) -> bool:
    """Return True if only this user can write to a folder, or if it does not exist yet."""
    try:
        state = folder.lstat()
    except OSError:
        return True
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def writable(folders: list[Path]) -> Path:
    """Return the first folder that can be written; it is made if it does not exist. Raises :class:`CompileError`."""
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
