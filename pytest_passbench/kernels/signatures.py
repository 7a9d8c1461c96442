"""The ``extern "C"`` functions that a C++ source defines: names and kinds of parameters, read from the text.

The text is split into tokens as the compiler splits it, in time linear in its length. Nothing is expanded, and no
directive is followed. Two points are stricter than the language. A sign is never part of a number. A raw string is
not a token of its own; :mod:`~pytest_passbench.candidate.cpp_text` refuses raw strings. Both can only show more names
than the compiler sees, never fewer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pytest_passbench.kernels.toolchain import CompileError

MAX_CHARACTERS = 512 * 1024  # of a source
_SPLICE = re.compile(r"\\[ \t\f\v]*+\n")  # GCC joins lines even if blanks follow the backslash
# The quantifiers are possessive, so no text is matched twice. An unterminated literal ends with its line, and an
# unterminated comment with the text.
_TOKEN = re.compile(
    r"""(?P<newline>\n)
      | (?P<space>[ \t\f\v]++ | //[^\n]*+ | /\*(?:[^*]++|\*(?!/))*+(?:\*/)?+)
      | (?P<number>\.?[0-9](?:[\w.]|'[0-9A-Za-z_])*+)
      | (?P<name>[^\W\d]\w*+)
      | (?P<string>"(?:[^"\\\n]++|\\.)*+(?:"|(?=\n)|\Z))
      | (?P<char>'(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\Z))
      | (?P<mark>::|.)""",
    re.X,
)

POINTER, DTYPE, VOID = "pointer", "dtype", "void"
# The kind of each C++ type that a launch can pass, on a 64-bit Linux.
KINDS: dict[str, str] = {
    **{"void": VOID, "double": "float64", "float": "float32", "bool": "bool", "pb::dtype": DTYPE},
    **{"pb::in": POINTER, "pb::out": POINTER, "size_t": "uint64", "ptrdiff_t": "int64", "ssize_t": "int64"},
    **{"int": "int32", "short": "int16", "long": "int64", "long long": "int64", "long int": "int64"},
    **{"unsigned": "uint32", "unsigned int": "uint32", "unsigned short": "uint16", "unsigned char": "uint8"},
    **{"unsigned long": "uint64", "unsigned long long": "uint64", "signed char": "int8"},
    **{f"int{bits}_t": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_QUALIFIERS = frozenset({"const", "volatile", "inline", "__restrict", "__restrict__", "restrict", "register"})
_MAX_FUNCTIONS, _MAX_PARAMETERS = 1000, 256
_MAX_TYPE_TOKENS = 64  # no type that a launch can pass is longer


@dataclass(frozen=True)
class Signature:
    """A function as it was declared.

    Kinds are "pointer", "dtype", "bool", "int8" to "uint64", "float32" and "float64"; a result may also be
    "void". ``written`` holds the positions of pointers through which the kernel may write. ``names`` are the names of
    the parameters, with "" for a parameter without one.
    """

    result: str
    parameters: tuple[str, ...]
    written: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()


@lru_cache(64)
def parse(source: str) -> Mapping[str, Signature]:
    """Return the signature of every function written as ``extern "C" result name(...) {``.

    Raises :class:`CompileError` for a type that no launch can pass, and for a source that is too long.
    """
    try:
        tokens = [token for token in SourceText(source).tokens() if token.kind != "newline"]
    except ValueError as error:
        raise CompileError(str(error), where="kernel source") from None
    signatures: dict[str, Signature] = {}
    for name, result, parameters in _heads(tokens):
        if len(signatures) == _MAX_FUNCTIONS or len(parameters) > _MAX_PARAMETERS:
            raise CompileError(
                f"the source is too complex: more than {_MAX_FUNCTIONS} functions, or {_MAX_PARAMETERS} parameters",
                where="kernel source",
            )
        kinds = tuple(_kind(parameter, name) for parameter in parameters)
        written = frozenset(index for index, words in enumerate(parameters) if _is_written(words))
        signatures[name] = Signature(_kind(result, name, result=True), kinds, written, tuple(map(_name, parameters)))
    return signatures


_Words = list[str]


def _heads(tokens: list[Token]) -> Iterator[tuple[str, _Words, list[_Words]]]:
    """Yield the name, the words of the result and the words of each parameter, function by function."""
    for index, token in enumerate(tokens[:-1]):
        if token.text == "extern" and tokens[index + 1].text == '"C"':
            head = _until_parenthesis(tokens, index + 2)
            if head and (read := _parameters(tokens, index + 2 + len(head) + 1)) is not None:
                yield head[-1], head[:-1], read


def _until_parenthesis(tokens: list[Token], start: int) -> _Words:
    """Return the words of result and name before the "(" of a function, or [] if it is not a function."""
    words: _Words = []
    for token in tokens[start : start + _MAX_TYPE_TOKENS]:
        if token.text == "(":
            return words if len(words) > 1 and words[-1].isidentifier() else []
        if token.kind != "name" and token.text not in ("::", "*"):
            break
        words.append(token.text)
    return []


def _parameters(tokens: list[Token], start: int) -> list[_Words] | None:
    """Return the words of each parameter of a definition, whose "(" precedes ``start``; None for anything else."""
    parameters: list[_Words] = [[]]
    for index in range(start, len(tokens)):
        text = tokens[index].text
        if text == ")":
            after = [token.text for token in tokens[index + 1 : index + 3]]
            if after[:1] != ["{"] and after != ["noexcept", "{"]:
                return None
            return [] if parameters in ([[]], [["void"]]) else parameters
        if text in ("(", "{", ";", "extern"):
            return None
        if text == ",":
            parameters.append([])
        else:
            parameters[-1].append(text)
    return None


def _is_written(words: _Words) -> bool:
    """Return True for a pointer to a type that is not const."""
    if "*" in words:
        return "const" not in words[: words.index("*")]
    return ("[" in words and "const" not in words) or words[:3] == ["pb", "::", "out"]


def _name(words: _Words) -> str:
    """Return the name of a parameter: the last word before an array's bracket, unless it ends the type."""
    words = words[: words.index("[")] if "[" in words else words
    plain = [word for word in words if word not in _QUALIFIERS]
    return plain[-1] if len(plain) > 1 and plain[-1].isidentifier() and plain[-2] != "::" else ""


def _kind(words: _Words, function: str, *, result: bool = False) -> str:
    """Return the kind of a written type, with or without the parameter's own name after it."""
    if "*" in words or "[" in words:
        return POINTER
    plain = " ".join(word for word in words if word not in _QUALIFIERS)
    plain = plain.replace(" :: ", "::").replace("std::", "")
    without_name = plain.rpartition(" ")[0]
    for written in (plain,) if result else (plain, without_name):
        if (kind := KINDS.get(written)) is not None and (result or kind != VOID):
            return kind
    declared = plain if result else without_name or plain
    raise CompileError(
        f"{function}: no way to pass a {declared!r} from Python", remedy=f"use a pointer or one of {', '.join(KINDS)}"
    )


class Token(NamedTuple):
    """A token: a "newline", "number", "name", "string", "char" or "mark", and its place in the joined text."""

    kind: str
    text: str
    at: int


class SourceText:
    """A source with its lines joined as the preprocessor joins them. Raises ValueError if it is too long."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_CHARACTERS:
            limit = f"{len(source):,} characters where {MAX_CHARACTERS:,} are the limit"
            raise ValueError(f"the source is too complex: {limit}")
        source = source.replace("\r\n", "\n")
        self._joined: list[int] = []  # places in the joined text at which a line break was removed
        removed = 0
        for match in _SPLICE.finditer(source):
            self._joined.append(match.start() - removed)
            removed += len(match[0])
        self.code = _SPLICE.sub("", source)

    def tokens(self) -> Iterator[Token]:
        """Yield all tokens except blanks and comments, in order."""
        for match in _TOKEN.finditer(self.code):
            kind = match.lastgroup or "mark"
            if kind != "space":
                yield Token(kind, match[0], match.start())

    def line(self, at: int) -> int:
        """Return the line of the source, counted from 1, in which the place ``at`` of the joined text lies."""
        return self.code.count("\n", 0, at) + bisect_left(self._joined, at + 1) + 1
