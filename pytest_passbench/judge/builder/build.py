"""Builds a candidate's C++ text into a library that a sandbox may load.

The text is screened, and so are its compiler flags, which may only tune the code. The library is checked, and the
result is cached under a hash of its sources.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.candidate import cpp_text
from pytest_passbench.core.rejected import Rejected, kernel_refused
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.builder import check, compile
from pytest_passbench.judge.builder.compile_errors import CompileFailed, SourceError
from pytest_passbench.judge.builder.store import ContentStore
from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.signatures import Signature
from pytest_passbench.kernels.toolchain import CompileError

_MAX_FLAGS, _MAX_FLAG_CHARACTERS = 64, 80
_OPTIMISATIONS = """
    aggressive-loop-optimizations associative-math builtin cx-limited-range delete-null-pointer-checks exceptions
    fast-math finite-math-only gcse if-conversion inline inline-functions inline-small-functions ipa-cp ivopts
    loop-interchange loop-unroll-and-jam math-errno move-loop-invariants omit-frame-pointer openmp openmp-simd
    peel-loops predictive-commoning prefetch-loop-arrays reciprocal-math rename-registers rounding-math rtti
    schedule-insns schedule-insns2 semantic-interposition signed-zeros slp-vectorize split-loops split-paths
    strict-aliasing strict-overflow trapping-math tree-loop-distribution tree-loop-vectorize tree-slp-vectorize
    tree-vectorize unroll-all-loops unroll-loops unsafe-math-optimizations unswitch-loops vectorize wrapv"""
_ISA = r"sse[\w.]*|ssse3|avx[\w.-]*|fma4?|f16c|bmi2?|popcnt|lzcnt|abm|adx|v?aes|gfni|v?pclmul(qdq)?|movbe|amx-\w+"
# -std begins with C++14, which has digit separators. Before it, a quote in a number begins a literal, so the compiler
# would read other tokens than the screen.
_ALLOWED = re.compile(
    rf"""-O([0-3sz]|fast)?
       | -std=(c|gnu)\+\+(14|1y|17|1z|20|2a|23|2b)
       | -(march|mtune|mcpu)=[\w.+-]+
       | -m(no-)?({_ISA}) | -mprefer-vector-width=(none|128|256|512) | -mfpmath=sse | -mrecip(=[\w,!-]+)?
       | -f(no-)?({"|".join(_OPTIMISATIONS.split())}) | -ffp-contract=(fast|on|off) | -fPIC
       | -fvect-cost-model=\w+ | -fsimd-cost-model=\w+ | -fexcess-precision=(fast|standard)
       | -W(no-)?(?![alp]\b)[a-z][a-z0-9+-]*(=\d+)? | -w | -g[0-3]?""",
    re.X,
)
# A macro's value can't be a name: with -Dname=asm the compiler would read a keyword, and the screen a name.
_DEFINITION = re.compile(r"-D(?P<name>[A-Za-z]\w*)(=-?\d+(\.\d+)?f?)?", re.ASCII)
_KEYWORDS_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default
    defined delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq"""
_KEYWORDS = frozenset(_KEYWORDS_WORDS.split())
MAX_KEPT_BYTES = 256 << 20  # of libraries in memory


def check_flags(flags: tuple[str, ...]) -> None:
    """Raise Rejected for the first flag that does more than tune."""
    if len(flags) > _MAX_FLAGS:
        raise kernel_refused("native-flag", f"{len(flags)} compiler flags: a kernel may add {_MAX_FLAGS}")
    for flag in flags:
        if not isinstance(flag, str) or len(flag) > _MAX_FLAG_CHARACTERS or not _plain(flag):
            raise kernel_refused(
                "native-flag",
                f"the compiler flag {str(flag)[:_MAX_FLAG_CHARACTERS]!r} is not one that a kernel may add:"
                " give flags that only tune the code, -DNAME or -DNAME=number",
            )


def _plain(flag: str) -> bool:
    if match := _DEFINITION.fullmatch(flag):
        return match["name"] not in _KEYWORDS
    return flag.isascii() and _ALLOWED.fullmatch(flag) is not None


@dataclass(frozen=True)
class BuiltLibrary:
    """A checked library: its bytes, and the signatures of the functions that it exports."""

    data: bytes
    functions: Mapping[str, Signature]


class Builder:
    """A builder of libraries behind ``walls``. ``cache`` is a folder of the judge's user; None keeps none on disk.

    Several builders may share a cache. A library from the cache is checked like one from the compiler.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._store = walls, ContentStore(cache)
        self._built: dict[str, BuiltLibrary] = {}
        self._failed: dict[str, Rejected] = {}  # so that no limit is reached twice

    def forget_failures(self) -> None:
        """Forget what failed, so that it is compiled again if asked for: a new run's candidates have other texts."""
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
            raise self._failed[key].with_traceback(None)
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
