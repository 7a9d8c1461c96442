"""The one reader of untrusted JSON: files of users, messages of sandboxed processes, journals.

It takes time and memory in proportion to the text, and raises nothing but :class:`Rejected`, whatever the text is.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from math import isinf
from pathlib import Path
from typing import Any, NoReturn

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.rejected import Rejected

MAX_DEPTH = 50  # of lists and objects in each other
MAX_DIGITS = 64  # of a number: enough for any integer of 64 bits, and for any float as programs print it
_REMEDY = "the file is cut short or was edited: correct it, or take a fresh copy"

_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_STRING = re.compile(rb'"[^"]*+"?')
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
#: A translation table: digits become 9, e and E become e, all other bytes become spaces.
_DIGITS = bytes(57 if byte in b"0123456789" else 101 if byte in b"eE" else 32 for byte in range(256))
_LONG, _LARGE = b"9" * (MAX_DIGITS + 1), b"e999"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(?P<half>u[dD][89a-fA-F])|.)")

Pairs = list[tuple[str, Any]]
Decode = Callable[[dict[str, Any]], Any]


def parse(text: str, path: Path, decode: Decode | None = None, remedy: str = _REMEDY) -> Any:
    """Return the data in the JSON text of a file. ``decode`` is applied to every object.

    Raises UserError for what :func:`read` refuses, and for half of a surrogate pair, which no file can hold.
    """
    try:
        data = read(text.encode(), decode=decode)
        if _SURROGATE.search(text) and any(escape["half"] for escape in _ESCAPES.finditer(text)):
            raise Rejected("data", "surrogate", "has half of a surrogate pair in a text")
    except Rejected as refusal:
        where = f"{path}:{refusal.line}" if refusal.line else path
        raise UserError(refusal.message, where=where, remedy=remedy) from None
    return data


def read(data: bytes, depth: int = MAX_DEPTH, decode: Decode | None = None) -> Any:
    """Return the data in a JSON text. ``decode`` is applied to every object, after those in it.

    Raises Rejected for bytes that are not JSON in UTF-8 or nest more than ``depth`` deep, for NaN and infinities, for
    a number of more than 64 digits in a row or too large for a float, and for a key that an object has twice.
    """
    if data.count(b"[") + data.count(b"{") > depth and _depth(data) > depth:
        message = f"has more than {depth} lists and objects in each other"
        raise Rejected("data", "depth", message, line=_line_of_depth(data, depth))
    try:
        return _decoder(decode, _has_large(data)).decode(data.decode())
    except json.JSONDecodeError as error:
        raise Rejected("data", "json", f"is not JSON: {error.msg}", line=error.lineno) from None
    except UnicodeDecodeError:
        raise Rejected("data", "json", "is not UTF-8 text") from None


def _has_large(data: bytes) -> bool:
    """Return True if a number may be too long or too large. Digits in strings count too, which does no harm."""
    digits = data.translate(_DIGITS, b"+")
    return _LONG in digits or _LARGE in digits


@cache
def _decoder(decode: Decode | None, careful: bool) -> json.JSONDecoder:
    """Return a decoder. A ``careful`` one checks each number, which takes longer."""
    numbers: dict[str, Any] = {"parse_int": _integer, "parse_float": _float} if careful else {}
    hook = _members if decode is None else lambda pairs: decode(_members(pairs))
    return json.JSONDecoder(object_pairs_hook=hook, parse_constant=_refuse, **numbers)


def _depth(data: bytes) -> int:
    """Return how deep lists and objects lie in each other. For bytes that are not JSON it may be any number."""
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    structure = plain.translate(None, _NOT_STRUCTURE).replace(b'""', b"")  # this may join two strings
    marks = _STRING.sub(b"", structure).translate(_STEPS)
    return max(accumulate(array("b", marks)), default=0)


def _line_of_depth(data: bytes, most: int) -> int:
    """Return the line at which lists and objects lie more than ``most`` deep in each other, 0 if none does."""
    depth = 0
    for token in _TOKEN.finditer(data):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        if depth > most:
            return data.count(b"\n", 0, token.start()) + 1
    return 0


def _members(pairs: Pairs) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = Counter(name for name, _ in pairs)
        message = f"has the key {abbreviated(max(names, key=names.__getitem__))} twice in one object"
        raise Rejected("data", "twice", message)
    return members


def _integer(digits: str) -> int:
    _check_length(digits)
    return int(digits)


def _float(digits: str) -> float:
    _check_length(digits)
    value = float(digits)
    if isinf(value):
        raise Rejected("data", "number", f"has the number {digits}, which is too large")
    return value


def _check_length(digits: str) -> None:
    if _LONG in digits.encode().translate(_DIGITS):
        raise Rejected("data", "number", f"has a number of more than {MAX_DIGITS} digits")


def _refuse(name: str) -> NoReturn:
    raise Rejected("data", "number", f"has {name}, which JSON lacks")
