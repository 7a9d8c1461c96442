"""From a candidate's C++ text to a library that a sandbox may load: screened, compiled, checked, kept by content."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...candidate import native
from ...errors import UserError
from ...kernels import signatures, toolchain
from ...kernels.errors import CompileError
from ...kernels.signatures import Signature
from ..sandbox import Walls
from . import check, compile
from .flags import check as check_flags
from .refusals import CompileFailed, KernelRefused

CACHE_BYTES = 1 << 30  # on disk
KEPT_BYTES = 256 << 20  # of libraries, in memory
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Built:
    """A checked library: its bytes, and the functions that it offers."""

    data: bytes
    functions: dict[str, Signature]

    def descriptor(self) -> int:
        """A descriptor of the library that nobody can write through or change; the caller closes it.

        A sandbox loads it from /proc/self/fd.
        """
        writable = os.memfd_create("kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(writable), "wb") as file:
                file.write(self.data)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, seals)
            return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(writable)


def cache_folder() -> Path | None:
    """Return where built libraries are kept from run to run: a folder of this user's; None if there is no home."""
    home = os.environ.get("XDG_CACHE_HOME") or (f"{os.environ['HOME']}/.cache" if "HOME" in os.environ else None)
    if home is None or not os.access(Path(home) if Path(home).exists() else Path(home).parent, os.W_OK):
        return None
    return Path(home) / "passbench" / "built"


class Builder:
    """Builds libraries behind ``walls``; ``cache`` is a folder of the judge's user, or None to keep none on disk.

    Several builders may share a cache. What is read from it is checked as what comes from the compiler is.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._cache = walls, _private(cache) if cache is not None else None
        self._built: dict[str, Built] = {}
        self._failed: dict[str, KernelRefused | CompileFailed] = {}  # a limit is not run into twice

    def library(self, source: str, flags: tuple[str, ...] = (), openmp: bool = False) -> Built:
        """The library of ``source``. Raises :class:`KernelRefused`, :class:`CompileFailed` (of which
        :class:`~.refusals.LimitReached` is one), or a UserError if this machine has no compiler."""
        screen(source, flags)
        options = toolchain.options(flags, openmp=openmp)
        key = toolchain.key(source, compile.arguments(options), toolchain.compiler())
        if key in self._failed:
            raise self._failed[key]
        if key not in self._built:
            try:
                declared = _declared(source)
                self._built[key] = self._find(key, declared) or self._make(key, source, options, declared)
            except (KernelRefused, CompileFailed) as error:
                self._failed[key] = error.with_traceback(None)
                raise
            while sum(len(built.data) for built in self._built.values()) > KEPT_BYTES and len(self._built) > 1:
                self._built.pop(next(iter(self._built)))  # the oldest; who needs it again finds it on disk
        return self._built[key]

    def _make(self, key: str, source: str, options: tuple[str, ...], declared: dict[str, Signature]) -> Built:
        data = compile.run(source, options, declared, self._walls)
        built = _checked(data, declared)
        if self._cache is not None:
            with tempfile.NamedTemporaryFile(dir=self._cache, delete=False) as file:
                file.write(hashlib.sha256(data).digest() + data)
            Path(file.name).rename(self._cache / key)  # of two builders that race, either's library is right
            _prune(self._cache)
        return built

    def _find(self, key: str, declared: dict[str, Signature]) -> Built | None:
        """What the cache on disk has, if it is whole."""
        if self._cache is None:
            return None
        try:
            stored = (self._cache / key).read_bytes()
        except OSError:
            return None
        data = stored[_DIGEST_BYTES:]
        whole = hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES]
        return _checked(data, declared) if whole else None


def screen(source: str, flags: tuple[str, ...]) -> None:
    """Raise :class:`KernelRefused` (or :class:`CompileFailed`) for what the text or the flags already show."""
    if not source.isascii():
        try:
            source.encode()
        except UnicodeEncodeError:
            raise KernelRefused("native", "the source is no text: it has half of a character") from None
    check_flags(flags)
    for line, rule, what in native.screen(source):
        if rule == "native-prints":
            raise CompileFailed(f"line {line} of the kernel's source: {what}: {native.REMEDIES[rule]}")
        raise KernelRefused(rule, f"line {line} of the kernel's source: {what}: {native.REMEDIES[rule]}")


def _declared(source: str) -> dict[str, Signature]:
    try:
        return signatures.parse(source)
    except CompileError as error:
        raise CompileFailed(str(error)) from None


def _checked(data: bytes, declared: dict[str, Signature]) -> Built:
    offered = check.check(data)
    return Built(data, {name: signature for name, signature in declared.items() if name in offered})


def _prune(cache: Path) -> None:
    """Remove the files that were made first, if there are more than :data:`CACHE_BYTES` of them."""
    found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(cache))
    excess = sum(size for _made, size, _path in found) - CACHE_BYTES
    for _made, size, path in found:
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size


def _private(folder: Path) -> Path:
    """Make ``folder`` if need be; only its user may write there, since what lies in it is loaded."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid():
        raise UserError("the folder for compiled kernels belongs to another user", where=folder)
    if state.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
