"""JSON of a user's files, read within limits: no depth, number or text that the rest of the program cannot take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated

MAX_DEPTH = 50  # of lists and objects in each other
MAX_DIGITS = 40  # of an integer
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.S)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_REMEDY = "the file is cut short or was edited: correct it, or take a fresh copy"

Pairs = list[tuple[str, Any]]


def parse(text: str, path: Path, decode: Callable[[dict[str, Any]], Any] = lambda value: value) -> Any:
    """Return the data in a JSON text. ``decode`` is applied to every object.

    Raises UserError with the line for text that is not JSON or beyond a limit: for NaN and infinities, which JSON
    lacks, for a key that an object has twice, and for half of a surrogate pair.
    """
    _check_depth(text, path)

    def take(pairs: Pairs) -> Any:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(
                f"the key {abbreviated(next(n for n in members if names.count(n) > 1))} twice in one object"
            )
        return decode(members)

    try:
        data = json.loads(text, object_pairs_hook=take, parse_int=_integer, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise UserError(f"is not JSON: {error.msg}", where=f"{path}:{error.lineno}", remedy=_REMEDY) from None
    except ValueError as error:
        raise UserError(f"has {error}", where=path, remedy=_REMEDY) from None
    if _SURROGATE.search(text):
        _check_text(data, path)
    return data


def _check_depth(text: str, path: Path) -> None:
    depth = 0
    for match in _MARKS.finditer(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
                raise UserError(
                    f"has more than {MAX_DEPTH} lists and objects in each other", where=where, remedy=_REMEDY
                )
        elif mark in "]}":
            depth -= 1


def _check_text(data: Any, path: Path) -> None:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError("has half of a surrogate pair in a text", where=path, remedy=_REMEDY) from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON lacks")
