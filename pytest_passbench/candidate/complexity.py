"""How deep a Python text nests, found in one linear look at its tokens before Python's parser sees it.

The parser and everything that walks a syntax tree recurse. A text of 100,000 brackets ends them with an error at best
and with a dead process at worst, and a text of 500,000 names makes a tree of 600 MB.
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
MAX_CHAIN = 1_000  # links of one expression: operators, attributes, calls; those around it count
MAX_ELIFS = 500
MAX_FORMAT = 2_000  # characters of one expression in a format string, before Python 3.12 reads them as tokens
MAX_FORMATS = 30_000  # characters of all of them: Python looks each of them up in the whole string
MAX_DIGITS = 4_300  # of a number: the tokenizer takes 500 bytes of memory for each

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_LONG_NUMBER = re.compile(rf"0[xXoObB][0-9a-fA-F_]{{{MAX_DIGITS}}}|[0-9_]{{{MAX_DIGITS}}}")
_FSTRING_START, _FSTRING_END = (getattr(tokenize, f"FSTRING_{end}", -1) for end in ("START", "END"))
_SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
_PLAIN_WORDS = frozenset({"True", "False", "None"})


class TooComplex(Exception):
    """A text that is not read because reading it could take very long; ``line`` is where that showed."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(f"too complex: {what}")


def check_complexity(text: str) -> None:
    """Raise TooComplex if the text nests too deeply or has too much of something.

    The look ends at the first thing that is not Python: the parser reads no further than that either.
    """
    number = _LONG_NUMBER.search(text)
    if number is not None:
        raise TooComplex(text.count("\n", 0, number.start()) + 1, f"a number of more than {MAX_DIGITS} digits")
    look = _Look()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.ERRORTOKEN and not token.string.isspace():
                return
            if token.type not in _SKIPPED:
                look.take(token)
    except (tokenize.TokenError, SyntaxError):
        return


@dataclass
class _Look:
    """Counters of one look: links of the expression at each open bracket, ``elif`` of each indentation."""

    links: list[int] = field(default_factory=lambda: [0])
    lambdas: list[int] = field(default_factory=lambda: [0])
    total: int = 0
    elifs: list[int] = field(default_factory=lambda: [0])
    first: bool = True
    formatted: int = 0
    tokens: int = 0

    def take(self, token: tokenize.TokenInfo) -> None:
        line = token.start[0]
        self.tokens += 1
        if self.tokens > MAX_TOKENS:
            raise TooComplex(line, f"more than {MAX_TOKENS} words and signs")
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
            if self.formatted > MAX_FORMATS:
                raise TooComplex(line, f"more than {MAX_FORMATS} characters of expressions in format strings")
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
        elif token.string in (",", ";"):  # the next element begins, but the body of a lambda is still inside it
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
    """How many characters the expressions of a format string have that came as one token; 0 for other strings.

    Inside an expression, a string's quotes and brackets hide a closing brace, as Python's own reading has it.
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
    depth, inside = 0, ""
    for at in range(start, len(literal)):
        sign = literal[at]
        if at - start > MAX_FORMAT:
            raise TooComplex(line, f"an expression of more than {MAX_FORMAT} characters in a format string")
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
