"""The judge's own C++ libraries, each compiled at its first use and kept for this user.

There are two: the generator of inputs, which the judge loads, and the engine, which sandboxed processes load.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_passbench.core.paths import ENGINE, user_cache
from pytest_passbench.judge.scratch import Scratch, sealed
from pytest_passbench.kernels import toolchain
from pytest_passbench.kernels.toolchain import CompileError

FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
TIMEOUT_SECONDS = 120


class NoLibrary(Exception):
    """An error: there is no compiler, or it failed. The message says which."""


@contextlib.contextmanager
def compiled(main: Path) -> Iterator[Path]:
    """Yield the path of the library of the C++ file ``main``, from the cache if it is there.

    Headers in the same folder belong to the source. Raises NoLibrary.
    """
    try:
        compiler = toolchain.compiler()
    except CompileError as error:
        raise NoLibrary(str(error)) from None
    with contextlib.ExitStack() as stack:
        folder = _private_folder()
        if folder is None:  # a temporary one will do, since the file may go once it is loaded
            folder = stack.enter_context(Scratch())
        path = folder / f"{_key(compiler, main.parent)}.so"
        if not path.is_file():
            _build(compiler, main, path)
        yield path


def _key(compiler: str, sources: Path) -> str:
    """Return a hash of everything that the compiler's output depends on: sources, flags, compiler, CPU."""
    files = sorted(path for path in sources.iterdir() if path.suffix in (".h", ".cpp"))
    parts = [part for path in files for part in (path.name, path.read_text())]
    return toolchain.key("\0".join(parts), FLAGS, compiler)


def _private_folder() -> Path | None:
    """Return the user's cache folder, which is made if need be; None if that fails, or if others have any access.

    Files in it are loaded into the judge, so nobody else may write there.
    """
    folder = user_cache("judge")
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
        private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
        if private and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None


def _build(compiler: str, main: Path, target: Path) -> None:
    """Compile in a temporary folder, then rename to ``target``, since two processes may do so. Raises NoLibrary."""
    try:
        with Scratch(target.parent) as scratch:
            built = scratch / target.name
            command = [compiler, *FLAGS, str(main), "-o", str(built)]
            plain = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=plain, timeout=TIMEOUT_SECONDS
            )
            if done.returncode:
                raise NoLibrary(f"{Path(compiler).name} failed: {done.stderr.strip()[:2000]}")
            built.rename(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibrary(f"{Path(compiler).name} did not run: {error}") from error


@cache
def descriptor() -> int | None:
    """Return a descriptor of the compiled engine, which stays open. Return None if it cannot be compiled here."""
    try:
        with compiled(ENGINE) as path:
            return sealed(path.read_bytes())
    except NoLibrary:
        return None
