"""C++ text as tokens, split as the compiler splits them, in time linear in the text's length.

Nothing is expanded, and no directive is followed. Two points are stricter than the language. A sign is never
part of a number. A raw string is not a token of its own; its reader refuses ``R`` before a string. Both can
only show more names than the compiler sees, never fewer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

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
