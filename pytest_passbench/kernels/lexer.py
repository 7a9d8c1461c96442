"""C++ text as tokens, split where the compiler splits them, in time linear in the text's length.

Nothing is expanded and no directive is followed. Two points are stricter than the language: a sign is never part of
a number, and a raw string is no token of its own (its reader refuses ``R`` before a string). Both can only show
more names than the compiler sees, never fewer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

LIMIT = 512 * 1024  # characters of a source
_SPLICE = re.compile(r"\\[ \t\f\v]*+\n")  # GCC joins lines also where blanks follow the backslash
# Possessive quantifiers: nothing is tried twice. An unterminated literal ends with its line, an unterminated
# comment with the text.
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


class Token(NamedTuple):
    """One token: a "newline", "number", "name", "string", "char" or "mark", and its place in the joined text."""

    kind: str
    text: str
    at: int


class Text:
    """A source with its lines joined as the preprocessor joins them; raises ValueError for one that is too long."""

    def __init__(self, source: str) -> None:
        if len(source) > LIMIT:
            raise ValueError(f"the source is too complex: {len(source):,} characters where {LIMIT:,} are the limit")
        source = source.replace("\r\n", "\n")
        # The places in the joined text at which a line break was taken out, for the number of a line.
        self._joined = [match.start() - taken for match, taken in _with_lengths(source)]
        self.code = _SPLICE.sub("", source)

    def tokens(self) -> Iterator[Token]:
        """All tokens but blanks and comments, in order."""
        for match in _TOKEN.finditer(self.code):
            kind = match.lastgroup or "mark"
            if kind != "space":
                yield Token(kind, match[0], match.start())

    def line(self, at: int) -> int:
        """The line of the source, counted from 1, in which the place ``at`` of the joined text lies."""
        return self.code.count("\n", 0, at) + bisect_left(self._joined, at + 1) + 1


def _with_lengths(source: str) -> Iterator[tuple[re.Match[str], int]]:
    taken = 0
    for match in _SPLICE.finditer(source):
        yield match, taken
        taken += len(match[0])
