"""The check of a value's form against its annotation, for results files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


def faults(value: Any, hint: Any, place: str) -> Iterator[str]:
    """Yield a sentence for each part of ``value`` that is not of its annotated type; ``place`` is its name.

    It knows the types that records are made of: dataclasses, lists, dicts, unions, text, numbers, bool, None and Any.
    """
    if is_dataclass(hint) and isinstance(hint, type):
        yield from _of_fields(value, hint, place)
    elif isinstance(hint, UnionType):
        if all(any(True for _ in faults(value, option, place)) for option in get_args(hint)):
            yield from faults(value, get_args(hint)[0], place)
    elif get_origin(hint) is list:
        yield from _of_items(value, get_args(hint)[0], place)
    elif get_origin(hint) is dict:
        yield from _of_values(value, get_args(hint)[1], place)
    elif hint is not Any and not _is(value, hint):
        yield f"{place} is not {_WORDS[hint]}"


def _is(value: Any, hint: type) -> bool:
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _of_fields(value: Any, hint: type, place: str) -> Iterator[str]:
    if not isinstance(value, hint):
        yield f"{place} is not an object"
        return
    for name, inner in _hints(hint).items():
        yield from faults(getattr(value, name), inner, f"{place}.{name}" if place else name)


@cache
def _hints(hint: Any) -> dict[str, Any]:
    known = get_type_hints(hint)
    return {field.name: known[field.name] for field in fields(hint)}


def _of_items(value: Any, hint: Any, place: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{place} is not a list"
        return
    for index, item in enumerate(value):
        yield from faults(item, hint, f"{place}[{index}]")


def _of_values(value: Any, hint: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place} is not an object"
        return
    for name, item in value.items():
        yield from faults(item, hint, f"{place}.{name}")
