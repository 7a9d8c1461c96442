"""Limits on the size and nesting of a Python text, checked on its tokens in linear time before it is parsed.

Python's parser and the walks over a syntax tree recurse. A deeply nested text makes them raise an error, or ends the
process. A text of many names makes a tree that fills the memory.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from dataclasses import dataclass, field

MAX_TOKENS = 200_000
MAX_BRACKETS = 100  # open at one place
MAX_INDENTS = 50
MAX_CHAIN = 1_000  # operators, attributes and calls of an expression, and of the expressions around it
MAX_ELIFS = 500
# Before 3.12, Python reads a format string as one token, and looks each of its expressions up in the whole string.
MAX_FORMAT_CHARACTERS = 2_000  # of an expression in a format string
MAX_FORMATS_CHARACTERS = 30_000  # of all expressions in format strings
# From 3.12 on, Python's tokenizer counts the characters before each word of a line anew. A string may be long.
MAX_COLUMN, MAX_FAR = 5_000, 1_000  # MAX_FAR words and signs of a text may lie beyond column MAX_COLUMN
MAX_DIGITS = 100  # in a row: the tokenizer's time grows with the square of their number

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_LONG_NUMBER = re.compile(rf"0[xXoObB][0-9a-fA-F_]{{{MAX_DIGITS}}}|[0-9][0-9_]{{{MAX_DIGITS}}}")
_FSTRING_START, _FSTRING_END = (getattr(tokenize, f"FSTRING_{end}", -1) for end in ("START", "END"))
_SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
_PLAIN_WORDS = frozenset({"True", "False", "None"})


class TooComplex(Exception):
    """A text that is not parsed, because parsing it could take too long. ``line`` is the line of the reason."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(f"too complex: {what}")


def check_complexity(text: str, tokens: int = MAX_TOKENS) -> None:
    """Raise TooComplex if the text nests too deeply, has more words and signs than ``tokens``, or exceeds another
    limit of this module.

    The check ends at the first token that is not Python's. The parser reads no further either. Before 3.12, spaces
    and marks within an identifier may be error tokens of ``tokenize``, but the parser reads on there.
    """
    number = _LONG_NUMBER.search(text)
    if number is not None:
        raise TooComplex(text.count("\n", 0, number.start()) + 1, f"a row of more than {MAX_DIGITS} digits")
    counters = _Counters(tokens)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.ERRORTOKEN and not f"_{token.string.strip()}".isidentifier():
                return
            if token.type not in _SKIPPED:
                counters.take(token)
    except (tokenize.TokenError, SyntaxError):
        return


@dataclass
class _Counters:
    """Counters of a text: links of the expression at each open bracket, ``elif`` of each indentation."""

    most: int
    links: list[int] = field(default_factory=lambda: [0])
    lambdas: list[int] = field(default_factory=lambda: [0])
    total: int = 0
    elifs: list[int] = field(default_factory=lambda: [0])
    first: bool = True
    formatted: int = 0
    tokens: int = 0
    far: int = 0

    def take(self, token: tokenize.TokenInfo) -> None:
        """Count a token. Raises TooComplex if it exceeds a limit."""
        line, column = token.start
        self.tokens += 1
        self.far += column > MAX_COLUMN
        if self.far > MAX_FAR:
            raise TooComplex(line, f"more than {MAX_FAR} words and signs beyond column {MAX_COLUMN}")
        if self.tokens > self.most:
            raise TooComplex(line, f"more than {self.most:,} words and signs")
        if token.type == tokenize.INDENT:
            self.elifs.append(0)
            if len(self.elifs) > MAX_INDENTS:
                raise TooComplex(line, f"indented more than {MAX_INDENTS} times")
        elif token.type == tokenize.DEDENT:
            if len(self.elifs) > 1:
                self.elifs.pop()
        elif token.type == tokenize.NEWLINE:
            self.links, self.lambdas, self.total, self.first = [0], [0], 0, True
        else:
            if self.first:
                self._begin(line, token.string)
            self._expression(line, token)

    def _begin(self, line: int, word: str) -> None:
        self.first = False
        if word == "elif":
            self.elifs[-1] += 1
            if sum(self.elifs) > MAX_ELIFS:
                raise TooComplex(line, f"more than {MAX_ELIFS} elif in a chain")
        elif word != "else":
            self.elifs[-1] = 0

    def _expression(self, line: int, token: tokenize.TokenInfo) -> None:
        if token.type == tokenize.STRING:
            self.formatted += _formatted(line, token.string)
            if self.formatted > MAX_FORMATS_CHARACTERS:
                most = f"{MAX_FORMATS_CHARACTERS} characters"
                raise TooComplex(line, f"more than {most} of expressions in format strings")
        elif token.type == _FSTRING_START or (token.type == tokenize.OP and token.string in _OPEN):
            self._link(line)
            self.links.append(0)
            self.lambdas.append(0)
            if len(self.links) > MAX_BRACKETS:
                raise TooComplex(line, f"more than {MAX_BRACKETS} open brackets")
        elif token.type == _FSTRING_END or (token.type == tokenize.OP and token.string in _CLOSE):
            if len(self.links) > 1:
                self.total -= self.links.pop()
                self.lambdas.pop()
        elif token.string in (",", ";"):  # the next element begins; the body of a lambda goes on
            self.total -= self.links[-1] - self.lambdas[-1]
            self.links[-1] = self.lambdas[-1]
        elif token.type == tokenize.OP or (keyword.iskeyword(token.string) and token.string not in _PLAIN_WORDS):
            self.lambdas[-1] += token.string == "lambda"
            self._link(line)

    def _link(self, line: int) -> None:
        self.links[-1] += 1
        self.total += 1
        if self.total > MAX_CHAIN:
            raise TooComplex(line, f"more than {MAX_CHAIN} operators in one expression")


def _formatted(line: int, literal: str) -> int:
    """Return the characters of the expressions in a format string that is one token. Return 0 for other strings.

    Quotes and brackets inside an expression hide a closing brace, as in Python's own reading.
    """
    quote = min((at for at in (literal.find("'"), literal.find('"')) if at >= 0), default=0)
    if "f" not in literal[:quote].lower():
        return 0
    position, total = literal.find("{", quote), 0
    while position >= 0:
        end = position + 2
        if literal[position : position + 2] != "{{":
            end = _end_of_expression(line, literal, position)
            total += end - position
        position = literal.find("{", end)
    return total


def _end_of_expression(line: int, literal: str, start: int) -> int:
    """Return the position behind an expression's closing brace. Raises TooComplex for a long expression."""
    depth, inside = 0, ""
    for at in range(start, len(literal)):
        sign = literal[at]
        if at - start > MAX_FORMAT_CHARACTERS:
            most = f"{MAX_FORMAT_CHARACTERS} characters"
            raise TooComplex(line, f"an expression of more than {most} in a format string")
        if inside:
            inside = "" if sign == inside else inside
        elif sign in "'\"":
            inside = sign
        elif sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth == 0:
                return at + 1
    return len(literal)
