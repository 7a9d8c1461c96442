"""Builds a candidate's C++ text into a library that a sandbox may load.

The text is screened and compiled, the library is checked, and the result is cached under a hash of its sources.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.candidate import cpp_text
from pytest_passbench.core.rejected import Rejected, kernel_refused
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.builder import check, compile
from pytest_passbench.judge.builder.diagnostics import SourceError
from pytest_passbench.judge.builder.flags import check as check_flags
from pytest_passbench.judge.builder.refusals import CompileFailed
from pytest_passbench.judge.builder.store import Store
from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.signatures import Signature
from pytest_passbench.kernels.toolchain import CompileError

MAX_KEPT_BYTES = 256 << 20  # of libraries in memory


@dataclass(frozen=True)
class BuiltLibrary:
    """A checked library: its bytes, and the signatures of the functions that it exports."""

    data: bytes
    functions: dict[str, Signature]


class Builder:
    """A builder of libraries behind ``walls``. ``cache`` is a folder of the judge's user; None keeps none on disk.

    Several builders may share a cache. A library from the cache is checked like one from the compiler.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._store = walls, Store(cache)
        self._built: dict[str, BuiltLibrary] = {}
        self._failed: dict[str, Rejected] = {}  # so that no limit is reached twice

    def forget_failures(self) -> None:
        """Compile what failed once more if it is asked for again: the texts of a new run's candidates are others."""
        self._failed.clear()

    def library(
        self, source: str, flags: tuple[str, ...] = (), openmp: bool = False, patience: float = math.inf
    ) -> BuiltLibrary:
        """Return the library of ``source``, from the cache if it is there.

        Raises Rejected if it breaks a rule, and CompileFailed if it does not compile, if compiling takes too much, or
        if this machine has no compiler. Raises TimeoutError if it takes longer than ``patience`` seconds.
        """
        screen(source, flags)
        try:
            options = toolchain.options(flags, openmp=openmp)
            key = toolchain.key(source, compile.arguments(options), toolchain.compiler())
        except CompileError as error:
            raise CompileFailed(str(error)) from error
        if key in self._failed:
            raise self._failed[key]
        if key not in self._built:
            try:
                self._built[key] = self._build(key, source, options, patience)
            except Rejected as error:
                self._failed[key] = error.with_traceback(None)
                raise
            while sum(len(built.data) for built in self._built.values()) > MAX_KEPT_BYTES and len(self._built) > 1:
                self._built.pop(next(iter(self._built)))  # the oldest, which is still on disk
        return self._built[key]

    def _build(self, key: str, source: str, options: tuple[str, ...], patience: float) -> BuiltLibrary:
        try:
            declared = signatures.parse(source)
        except CompileError as error:
            raise CompileFailed(str(error), source) from None
        stored = self._store.get(key)
        data = compile.run(source, options, declared, self._walls, patience) if stored is None else stored
        exported = check.check(data)
        if stored is None:
            self._store.put(key, data)
        return BuiltLibrary(data, {name: signature for name, signature in declared.items() if name in exported})


def screen(source: str, flags: tuple[str, ...]) -> None:
    """Raise Rejected if text or flags break a rule, CompileFailed if the text prints."""
    if not source.isascii():
        try:
            source.encode()
        except UnicodeEncodeError:
            raise kernel_refused("native", "the source is no text: it has half of a character") from None
    check_flags(flags)
    for line, rule, what in cpp_text.screen(source):
        if rule == "native-prints":
            message = f"{what}: {cpp_text.REMEDIES[rule]}"
            errors = (SourceError(line, 0, message),)
            raise CompileFailed(f"line {line} of the kernel's source: {message}", source, errors)
        raise kernel_refused(rule, f"line {line} of the kernel's source: {what}: {cpp_text.REMEDIES[rule]}")
