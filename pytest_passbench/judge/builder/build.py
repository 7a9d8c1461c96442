"""From a candidate's C++ text to a library that a sandbox may load: screened, compiled, checked, kept by content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.candidate import cpp_text
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.builder import check, compile
from pytest_passbench.judge.builder.flags import check as check_flags
from pytest_passbench.judge.builder.refusals import CompileFailed, KernelRefused
from pytest_passbench.judge.builder.store import Store
from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.errors import CompileError
from pytest_passbench.kernels.signatures import Signature

MAX_KEPT_BYTES = 256 << 20  # of libraries, in memory


@dataclass(frozen=True)
class Built:
    """A checked library: its bytes, and the functions that it offers."""

    data: bytes
    functions: dict[str, Signature]


class Builder:
    """Builds libraries behind ``walls``; ``cache`` is a folder of the judge's user, or None to keep none on disk.

    Several builders may share a cache. What is read from it is checked as what comes from the compiler is.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._store = walls, Store(cache)
        self._built: dict[str, Built] = {}
        self._failed: dict[str, KernelRefused | CompileFailed] = {}  # a limit is not run into twice

    def library(self, source: str, flags: tuple[str, ...] = (), openmp: bool = False) -> Built:
        """Return the library of ``source``.

        Raises KernelRefused, CompileFailed (LimitReached is one), or UserError if this machine has no compiler.
        """
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
            while sum(len(built.data) for built in self._built.values()) > MAX_KEPT_BYTES and len(self._built) > 1:
                self._built.pop(next(iter(self._built)))  # the oldest; who needs it again finds it on disk
        return self._built[key]

    def _make(self, key: str, source: str, options: tuple[str, ...], declared: dict[str, Signature]) -> Built:
        data = compile.run(source, options, declared, self._walls)
        built = _checked(data, declared)
        self._store.put(key, data)
        return built

    def _find(self, key: str, declared: dict[str, Signature]) -> Built | None:
        """What the cache on disk has, if it is whole."""
        data = self._store.get(key)
        return None if data is None else _checked(data, declared)


def screen(source: str, flags: tuple[str, ...]) -> None:
    """Raise :class:`KernelRefused` (or :class:`CompileFailed`) for what the text or the flags already show."""
    if not source.isascii():
        try:
            source.encode()
        except UnicodeEncodeError:
            raise KernelRefused("native", "the source is no text: it has half of a character") from None
    check_flags(flags)
    for line, rule, what in cpp_text.screen(source):
        if rule == "native-prints":
            raise CompileFailed(f"line {line} of the kernel's source: {what}: {cpp_text.REMEDIES[rule]}")
        raise KernelRefused(rule, f"line {line} of the kernel's source: {what}: {cpp_text.REMEDIES[rule]}")


def _declared(source: str) -> dict[str, Signature]:
    try:
        return signatures.parse(source)
    except CompileError as error:
        raise CompileFailed(str(error)) from None


def _checked(data: bytes, declared: dict[str, Signature]) -> Built:
    offered = check.check(data)
    return Built(data, {name: signature for name, signature in declared.items() if name in offered})
