"""Checks of JSON data that is not trusted: each returns its argument, or raises Rejected."""

from __future__ import annotations

import keyword
import unicodedata
from typing import Any

from pytest_passbench.core.schema import refusal

MAX_EXTENT = 1 << 40  # a size, a stride, an offset, or the bytes of a tensor
MAX_NAME_CHARACTERS = 200  # of a pass, an operator, a parameter, or a compiler flag


def field(data: Any, key: str, of: type) -> Any:
    """Return an object's value of exactly the type ``of``. Raises Rejected if there is none."""
    if not isinstance(data, dict) or type(data.get(key)) is not of:
        raise refusal(f"{key} is missing, or of another type")
    return data[key]


def tagged(data: Any) -> tuple[str, Any]:
    """Return the key and the value of an object with a single key. Raises Rejected for any other data."""
    if not isinstance(data, dict) or len(data) != 1:
        raise refusal("an entry that is not tagged with its kind")
    ((tag, content),) = data.items()
    return str(tag), content


def listed(data: Any) -> list[Any]:
    """Return ``data`` if it is a list. Raises Rejected for any other data."""
    if not isinstance(data, list):
        raise refusal("a list is missing")
    return data


def at_most(items: list[Any], most: int) -> list[Any]:
    """Return a list of at most ``most`` items. Raises Rejected for a longer one."""
    if len(items) > most:
        raise refusal(f"more than {most} entries")
    return items


def pairs(data: Any, most: int) -> list[tuple[Any, Any]]:
    """Return a list of at most ``most`` pairs. Raises Rejected for any other data."""
    items = at_most(listed(data), most)
    if any(not isinstance(pair, list) or len(pair) != 2 for pair in items):
        raise refusal("named values that are not pairs of a name and a value")
    return [(name, value) for name, value in items]


def integer(value: Any, most: int = MAX_EXTENT) -> int:
    """Return an integer between 0 and ``most``, inclusive. Raises Rejected for any other data, booleans too."""
    if type(value) is not int or not 0 <= value <= most:
        raise refusal("a number out of range")
    return value


def number(value: Any) -> float | int | bool:
    """Return a boolean, an integer or a float. Raises Rejected for any other data."""
    if not isinstance(value, (bool, int, float)):
        raise refusal("a fill value that is not a number")
    return value


def text(value: Any, most: int) -> str:
    """Return a text of at most ``most`` characters. Raises Rejected for any other data."""
    if not isinstance(value, str) or len(value) > most:
        raise refusal(f"something else than a text of at most {most} characters")
    return value


def identifier(value: Any) -> str:
    """Return an identifier of Python's that is not a keyword. Raises Rejected for any other data."""
    valid = isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value)
    if not valid or len(value) > MAX_NAME_CHARACTERS:
        raise refusal(f"a name that is no identifier of at most {MAX_NAME_CHARACTERS} characters")
    return str(value)


def check_distinct(names: list[str]) -> None:
    """Raise Rejected if two names are the same. Python compares identifiers in Unicode's form NFKC."""
    if len({unicodedata.normalize("NFKC", name) for name in names}) < len(names):
        raise refusal("two values of one name")
