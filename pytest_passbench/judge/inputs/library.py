"""The judge's own C++, compiled at first use, for the judge alone: nothing of it is seen by a sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
MAIN = "generate.cpp"
COMPILERS = ("g++", "clang++", "c++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
TIMEOUT_SECONDS = 120


class NoLibrary(Exception):
    """There is no compiler, or it failed; the message says which."""


def load() -> ctypes.CDLL:
    """The compiled library, from the cache if it is there. Raises NoLibrary."""
    compiler = _compiler()
    for folder in _private_folders():
        path = folder / f"{_key(compiler)}.so"
        if not path.is_file():
            _build(compiler, path)
        return _opened(path)
    with tempfile.TemporaryDirectory(prefix="passbench-judge-") as name:  # once loaded, the file may go
        path = Path(name) / "generate.so"
        _build(compiler, path)
        return _opened(path)


def _opened(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibrary(f"the compiled library does not load: {error}") from error


def _compiler() -> str:
    """The real path of $CXX or of the first compiler found."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return os.path.realpath(found)
    raise NoLibrary("no C++ compiler found")


def _key(compiler: str) -> str:
    """A hash of all that decides what the compiler makes: sources, flags, compiler, CPU."""
    state = Path(compiler).stat()
    files = sorted(path for path in SOURCES.iterdir() if path.suffix in (".h", ".cpp"))
    parts = [part for path in files for part in (path.name, path.read_text())]
    parts += [*FLAGS, compiler, str(state.st_size), str(state.st_mtime_ns), _features()]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part.encode()).to_bytes(8, "little") + part.encode())
    return digest.hexdigest()[:40]


def _features() -> str:
    """The CPU's model and features, which -march=native compiles for."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.split("\t")[0].rstrip() in wanted)


def _private_folders() -> Iterator[Path]:
    """The user's cache, made if need be, unless others can look or write into it: what lies there is loaded."""
    home = os.environ.get("XDG_CACHE_HOME") or (Path(os.environ["HOME"]) / ".cache" if "HOME" in os.environ else None)
    if home is None:
        return
    folder = Path(home) / "passbench" / "judge"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
        private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
        if private and os.access(folder, os.W_OK | os.X_OK):
            yield folder


def _build(compiler: str, target: Path) -> None:
    """Compile into a file of our own, then rename: of two processes that race, either result is right."""
    handle, scratch = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        command = [compiler, *FLAGS, str(SOURCES / MAIN), "-o", scratch]
        plain = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=plain, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            raise NoLibrary(f"{Path(compiler).name} failed: {done.stderr.strip()[:2000]}")
        Path(scratch).rename(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibrary(f"{Path(compiler).name} did not run: {error}") from error
    finally:
        Path(scratch).unlink(missing_ok=True)
