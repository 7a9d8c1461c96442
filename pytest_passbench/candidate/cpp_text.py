"""Checks of a kernel's C++ text. They refuse what cannot be seen in the built library.

The library shows the functions that a kernel calls, the storage that it keeps and the constructors that it runs,
however they were spelled (:mod:`pytest_passbench.judge.builder.check`). The text shows inline assembly, attributes
that place or rename code, headers, pragmas, and builtins for clocks and frames. Macros are not expanded. So whatever
could build such a name is refused: token pasting, trigraphs, and names of the compiler's own headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from pytest_passbench.core.plurals import words
from pytest_passbench.kernels.signatures import SourceText, Token

Refusal = tuple[int, str, str]  # line or position, rule, and the refused text in words
MAX_FINDINGS = 20
REMEDIES = {
    "native": "a C++ kernel computes on its arguments, and does nothing else",
    "native-prints": "a measured process has nothing to print to; print from the wrapper",
    "native-include": "include only standard headers that compute, and passbench.h",
}

INCLUDES = words("""
    passbench.h cmath math.h cstdint stdint.h cstring string.h cstddef stddef.h cstdlib stdlib.h cstdio stdio.h
    algorithm array vector limits limits.h climits cfloat float.h numeric utility tuple type_traits functional memory
    bit atomic complex cassert assert.h initializer_list new optional span string string_view stdexcept exception
    iterator cinttypes inttypes.h cstdbool stdbool.h stdalign.h cfenv numbers concepts compare ranges variant map set
    unordered_map unordered_set queue deque stack list random ratio iso646.h version valarray
    omp.h immintrin.h x86intrin.h emmintrin.h xmmintrin.h pmmintrin.h tmmintrin.h smmintrin.h nmmintrin.h
    arm_neon.h arm_sve.h arm_fp16.h arm_bf16.h experimental/simd""")
_PRINTING = frozenset({"iostream", "ostream", "sstream", "iomanip", "format", "print"})
_DIRECTIVES = words("define undef if ifdef ifndef elif elifdef elifndef else endif include pragma error warning")
_PRAGMA = re.compile(
    r"""omp\s(?!.*\b(target|declare\s+target|threadprivate)\b).* | once | (no)?unroll\b.* | ivdep | simd | vector\b.*
      | STDC\s+\w+\s+\w+
      | GCC\s+(ivdep | unroll\b.* | optimize\b.* | target\b.* | push_options | pop_options | diagnostic\b.*)
      | clang\s+(loop\b.* | fp\b.* | diagnostic\b.*)""",
    re.X,
)
_ATTRIBUTES = words("""
    always_inline noinline inline hot cold pure const flatten aligned packed may_alias vector_size ext_vector_type
    unused maybe_unused nodiscard warn_unused_result likely unlikely fallthrough noreturn deprecated target optimize
    assume_aligned malloc alloc_size alloc_align nonnull returns_nonnull nothrow leaf visibility assume simd noclone
    noipa artificial gnu_inline restrict neon_vector_type used no_unique_address min_vector_width opencl_unroll_hint
    no_sanitize optnone format externally_visible no_instrument_function""")
# Attributes that place or rename code, or run it at load time.
_PLACING = words("""
    constructor destructor ifunc section alias weak weakref symver init_priority cleanup naked target_clones
    patchable_function_entry""")
#: Attributes that are refused everywhere if an argument follows, or if a macro may carry the name into an attribute.
#: The compiler copies the argument into its assembly, where a line break or a semicolon begins another instruction.
_WITH_ARGUMENT = frozenset({"section", "symver", "weakref", "ifunc", "alias", "init_priority"})
# Reserved names (of the compiler and its headers) that a kernel may use. Other reserved names include macros that can
# paste tokens and declare names for the assembler.
_RESERVED = re.compile(
    r"""__(restrict|inline|const|volatile|signed|typeof|alignof|attribute|real|imag|complex|func|vector)(__)?
      | __(extension|int128|int128_t|uint128_t|null|fp16|bf16|float128|cplusplus|forceinline|FUNCTION__)
      | __(PRETTY_FUNCTION|VA_OPT|VA_ARGS)__ | __cpp_\w+ | __has_(builtin|attribute|cpp_attribute)
      | __builtin_\w+ | __m(64|128|256|512)(i|d|h|bh)?(_u)? | __mmask(8|16|32|64)
      | __(AVX|SSE|FMA|F16C|BMI|ARM|AES|GFNI|POPCNT|LZCNT|ADX)\w* | __(GNUC|GNUG)_?\w*__ | __clang(_\w+)?__
      | __(x86_64|i386|amd64|aarch64|arm|linux|unix|GLIBC|LP64|FILE|LINE|DATE|TIME|COUNTER)__
      | __(OPTIMIZE|FAST_MATH|FINITE_MATH_ONLY|NO_MATH_ERRNO|BYTE_ORDER|ORDER_\w+|STDC_\w+|CHAR_BIT|SIZEOF_\w+
         |\w+_MAX|\w+_MIN|\w+_DIG|\w+_EPSILON)__
      | _(?!GLIBC|LIBC|PSTL|STD|IO)[A-Z]\w*""",
    re.X,
)
#: Scopes of the compilers' attributes. Brackets of a macro can make an attribute of them anywhere.
_SCOPES = frozenset({"gnu", "clang", "_Clang"})
_OPENING = frozenset({"__attribute__", "__attribute"}) | _SCOPES
_ASSEMBLY = frozenset({"asm", "__asm", "__asm__"})
_BUILTINS = re.compile(
    r"""(__builtin_(ia32_)?|__?)(rdtscp?|rdpmc|rdpid|(rd|wr)[fg]sbase\w*|(rd|wr)pkru|xbegin|xend|xabort|xtest
         |xgetbv|xsetbv|(read|write)[fg]sbase_u\d+|umwait|tpause|umonitor|enqcmds?|(read|write)eflags_u\d+)
      | __builtin_(readcyclecounter|readsteadycounter|thread_pointer|set_thread_pointer|return_address|frame_address
         |extract_return_addr|frob_return_addr|eh_return|unwind_init|dwarf_cfa|apply|apply_args|return|setjmp|longjmp
         |arm_[rw]sr\w*|sponentry|address_of_return_address|addressof_return_address)""",
    re.X,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_PAIRS = frozenset({"##", "%:", "<:", ":>", "<%", "%>"})
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x80-\U0010ffff]")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")


def screen(source: str) -> Iterator[Refusal]:
    """Yield ``(line, rule, what)`` for what a kernel may not contain, at most 20 findings.

    ``what`` describes the refused text in words. Control characters and trigraphs come first. The rest follows in the
    order of the text.
    """
    yield from islice(_screen(source), MAX_FINDINGS)


def _screen(source: str) -> Iterator[Refusal]:
    try:
        text = SourceText(source)
    except ValueError as error:
        yield 1, "native", str(error)
        return
    for pattern, what in ((_CONTROL, "a control character"), (_TRIGRAPH, "a trigraph")):
        if match := pattern.search(text.code):
            yield text.line(match.start()), "native", what
    for at, rule, what in _findings(text.tokens(), text):
        yield text.line(at), rule, what


def _findings(tokens: Iterable[Token], text: SourceText) -> Iterator[Refusal]:
    """Yield the findings in the tokens, with positions in place of lines."""
    lines = [list(line) for ends, line in groupby(tokens, lambda token: token.kind == "newline") if not ends]
    end = Token("newline", "", len(text.code))
    carrying, brackets = any(map(_carries, lines)), _Attributes()
    for line, behind in zip(lines, _behind(lines, end), strict=True):
        directive = line[0].text == "#"
        define = directive and len(line) > 1 and line[1].text == "define"
        if directive:
            yield from _directive(line, text)
            yield from brackets.directive(line[0])
        for index, token in enumerate(line):
            after = line[index + 1] if index + 1 < len(line) else end if directive else behind
            if token.kind == "mark" and (index or not directive):
                yield from _mark(token, after)
            elif token.kind == "name":
                yield from _name(token, after, define, carrying and not directive)
                yield from _operator(line, index)
            if define or not directive:
                yield from brackets.feed(token, after)


def _behind(lines: list[list[Token]], end: Token) -> list[Token]:
    """Return the token that the compiler sees behind each line: the first of the next line that is no directive."""
    result, behind = list[Token](), end
    for line in reversed(lines):
        result.append(behind)
        behind = behind if line[0].text == "#" else line[0]
    return result[::-1]


def _carries(line: list[Token]) -> bool:
    """Return True if a line lets a macro carry a name from elsewhere into an attribute.

    Such a line defines a macro with parameters that has an attribute, or a macro with unpaired brackets, which may
    end an attribute or an argument of one. Other macros only add names that are checked where they are defined.
    """
    if line[0].text != "#":
        return any(token.text == "__nonnull" for token in line)  # a macro of the C library
    if len(line) < 3 or line[1].text != "define":
        return False
    with_parameters = len(line) > 3 and line[3].text == "(" and line[3].at == line[2].at + len(line[2].text)
    if with_parameters and any(token.text in _OPENING or token.text == "__nonnull" for token in line):
        return True
    depth = 0
    for token in line[3:]:
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth < 0:
            return True
    return depth > 0


def _mark(token: Token, after: Token) -> Iterator[Refusal]:
    pair = token.text + after.text
    if after.at == token.at + 1 and pair in _PAIRS:
        yield token.at, "native", "token pasting" if pair == "##" else "a digraph"
    elif token.text == "\\":
        yield token.at, "native", "a backslash outside of literals"


def _name(token: Token, after: Token, define: bool, carrying: bool) -> Iterator[Refusal]:
    """Yield a finding for a name. ``carrying`` is True if a macro may carry it into an attribute."""
    name, bare = token.text, token.text.strip("_")
    if name in _ASSEMBLY or name.startswith("_tile_"):  # AMX macros put their arguments into assembly
        yield token.at, "native", "inline assembly"
    elif _BUILTINS.fullmatch(name):
        yield token.at, "native", f"{name}, which looks at clocks, frames or the machine's state"
    elif name.startswith("__attribute") and after.text != "(":
        yield token.at, "native", f"{name} without its parentheses"
    elif name.startswith("__has_") and not _RESERVED.fullmatch(name):
        yield token.at, "native-include", name
    elif re.match("__|_[A-Z]", name) and not (_RESERVED.fullmatch(name) or bare in _ATTRIBUTES | _PLACING):
        yield token.at, "native", f"{name}, a name that belongs to the compiler and its headers"
    elif bare in _PLACING and (define or (bare in _WITH_ARGUMENT and (carrying or after.text == "("))):
        yield token.at, "native", f"attribute {bare}"
    elif name in ("R", "LR", "uR", "UR", "u8R") and after.text[:1] == '"' and after.at == token.at + len(name):
        yield token.at, "native", "a raw string"


def _operator(line: list[Token], index: int) -> Iterator[Refusal]:
    """Yield a finding for ``_Pragma("...")``, by the rules of ``#pragma``."""
    if line[index].text != "_Pragma":
        return
    match following := [token.text for token in line[index + 1 : index + 4]]:
        case ["(", text, ")"] if text[:1] == '"' and "\\" not in text and _PRAGMA.fullmatch(text.strip('"').strip()):
            return
    yield line[index].at, "native", f"_Pragma {''.join(following)[:60]}"


def _directive(line: list[Token], text: SourceText) -> Iterator[Refusal]:
    """Yield a finding for a preprocessor line, whose first token is "#"."""
    if len(line) == 1:
        return
    name, rest = line[1], line[2:]
    if name.text not in _DIRECTIVES:
        rule = "native-include" if name.text in ("import", "include_next", "embed") else "native"
        yield name.at, rule, f"#{name.text}"
    elif name.text == "pragma":
        words = " ".join(token.text for token in rest)
        if not _PRAGMA.fullmatch(words):
            yield name.at, "native", f"#pragma {words[:60]}"
    elif name.text == "include":
        whole = text.code[rest[0].at : rest[-1].at + len(rest[-1].text)] if rest else ""
        header = re.fullmatch(r'<([\w./]+)>|"([\w./]+)"', whole)
        header_name = header and (header[1] or header[2])
        if header_name not in INCLUDES:
            rule = "native-prints" if header_name in _PRINTING else "native-include"
            yield name.at, rule, f"#include {whole[:60]}"


_NAMES_DEPTH = 2  # of brackets: where the names of attributes stand


class _Attributes:
    """A check of the names in ``__attribute__((...))`` and ``[[...]]``, which gets one token after another."""

    def __init__(self) -> None:
        self._depth = 0  # of brackets; 0 outside of attributes
        self._closing = ""

    def directive(self, token: Token) -> Iterator[Refusal]:
        """Yield a finding for a preprocessor line, which begins with ``token``, if it is in an attribute.

        Otherwise text after an attribute could become a part of it, since ``#if`` can hide the brackets that end it.
        """
        if self._closing:
            self._closing = ""
            yield token.at, "native", "a preprocessor line in an attribute"

    def feed(self, token: Token, after: Token) -> Iterator[Refusal]:
        """Take the next token. Yield a finding if it names an attribute that is not allowed."""
        if not self._closing:
            if token.text in ("__attribute__", "__attribute"):
                self._closing, self._depth = ")", 0
            elif token.text == "[" and after.text == "[":
                self._closing, self._depth = "]", 1
            elif token.text in _SCOPES:
                yield token.at, "native", f"{token.text} outside of an attribute"
            return
        if token.text in _OPEN:
            self._depth += 1
        elif token.text in _CLOSE:
            self._depth -= 1
            if self._depth <= 0:
                self._closing = ""
        elif token.kind == "name":
            name = token.text.strip("_")
            listed = name in _ATTRIBUTES or name == "using" or token.text in _SCOPES
            # A macro may end an argument with its brackets, so one that places code is refused in an argument too.
            if name in _PLACING or (self._depth <= _NAMES_DEPTH and not listed):
                yield token.at, "native", f"attribute {name}"
