"""A checker for messages of untrusted processes. It turns bytes into plain values of a known form.

A schema is a value: ``Fields({"name": Text(80), "sizes": Items(Whole(0, 99), most=8)})``. :func:`check` returns a
copy that has the schema's form and nothing else. :func:`parse` does the same from the bytes of a JSON text. Neither
raises anything but :class:`BadMessage`, whatever it is given.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

MAX_BYTES = 1 << 22
MAX_DEPTH = 32  # of nested lists and objects
MAX_DIGITS = 64  # of a number: enough for any 64-bit integer and any printed float
ADDRESS_END = 1 << 64

#: A whole string (to the end of the text if it is not closed), or a bracket.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_MAX_SHOWN_CHARACTERS = 40  # of a name or a value in an error message


class BadMessage(Exception):
    """An error in a received message. ``path`` names the wrong part; ``what`` says what is wrong with it."""

    def __init__(self, path: str, what: str) -> None:
        self.path, self.what = path, what
        super().__init__(f"{path}: {what}" if path else what)


class Schema(ABC):
    """A form that a value may have."""

    @abstractmethod
    def check(self, value: object, path: str) -> Any:
        """Return the value in this form. ``path`` is its place in the message. Raises BadMessage."""


def check(schema: Schema, value: object) -> Any:
    """Return a copy of ``value`` that has the form of ``schema``. Raises BadMessage."""
    return schema.check(value, "")


def parse(schema: Schema, data: bytes, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """Return the content of the JSON text ``data``, in the form of ``schema``. Raises BadMessage.

    NaN, infinities, huge numbers, repeated field names and deep nesting are refused before or while the text is
    read. Deep nesting would overflow the parser's stack, and numbers of thousands of digits take long to convert.
    """
    if len(data) > max_bytes:
        raise BadMessage("", f"has {len(data)} bytes, more than {max_bytes}")
    depth = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        depth += (first in b"[{") - (first in b"]}")
        if depth > max_depth:
            raise BadMessage("", f"is nested more than {max_depth} deep")
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except ValueError as error:
        raise BadMessage("", "is no JSON text") from error
    return schema.check(value, "")


def _number(convert: Callable[[str], int | float]) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        if len(text) > MAX_DIGITS:
            raise BadMessage("", f"has a number of {len(text)} digits")
        return convert(text)

    return read


def _no_number(text: str) -> None:
    raise BadMessage("", f"has the number {text}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise BadMessage("", "names a field twice")
    return result


_DECODER = json.JSONDecoder(
    parse_int=_number(int), parse_float=_number(float), parse_constant=_no_number, object_pairs_hook=_object
)


@dataclass(frozen=True)
class Text(Schema):
    """A string of up to ``most`` characters. Lone surrogates are escaped, since no UTF-8 file can hold them."""

    most: int

    def check(self, value: object, path: str) -> str:
        if type(value) is not str:
            raise BadMessage(path, f"is {_kind(value)}, not a text")
        if len(value) > self.most:
            raise BadMessage(path, f"has {len(value)} characters, more than {self.most}")
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Word(Schema):
    """A string from a short list."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def check(self, value: object, path: str) -> str:
        if type(value) is not str or value not in self.words:
            raise BadMessage(path, f"is {_abbreviated(value)}, not one of {', '.join(self.words)}")
        return value


@dataclass(frozen=True)
class Whole(Schema):
    """An integer from ``least`` to ``most``, both included."""

    least: int
    most: int

    def check(self, value: object, path: str) -> int:
        if type(value) is not int:
            raise BadMessage(path, f"is {_kind(value)}, not an integer")
        if not self.least <= value <= self.most:
            raise BadMessage(path, f"is {_abbreviated(value)}, not in {self.least} to {self.most}")
        return value


@dataclass(frozen=True)
class Share(Schema):
    """A number from 0 to 1, both included."""

    def check(self, value: object, path: str) -> float:
        if type(value) is not float and type(value) is not int:
            raise BadMessage(path, f"is {_kind(value)}, not a number")
        if not 0 <= value <= 1:
            raise BadMessage(path, f"is {_abbreviated(value)}, not in 0 to 1")
        return float(value)


#: An address, or 0 for none.
ADDRESS = Whole(0, ADDRESS_END - 1)


@dataclass(frozen=True)
class Flag(Schema):
    """A truth value."""

    def check(self, value: object, path: str) -> bool:
        if type(value) is not bool:
            raise BadMessage(path, f"is {_kind(value)}, not true or false")
        return value


@dataclass(frozen=True)
class Items(Schema):
    """A list of ``least`` to ``most`` values of one form."""

    item: Schema
    most: int
    least: int = 0

    def check(self, value: object, path: str) -> list[Any]:
        items = _list(value, path)
        if not self.least <= len(items) <= self.most:
            raise BadMessage(path, f"has {len(items)} items, not {self.least} to {self.most}")
        return [self.item.check(item, f"{path}[{index}]") for index, item in enumerate(items)]


@dataclass(frozen=True)
class Row(Schema):
    """A list of values of these forms, in this order."""

    columns: tuple[Schema, ...]

    def __init__(self, *columns: Schema) -> None:
        object.__setattr__(self, "columns", columns)

    def check(self, value: object, path: str) -> list[Any]:
        items = _list(value, path)
        if len(items) != len(self.columns):
            raise BadMessage(path, f"has {len(items)} items, not {len(self.columns)}")
        columns = enumerate(zip(self.columns, items, strict=True))
        return [column.check(item, f"{path}[{index}]") for index, (column, item) in columns]


@dataclass(frozen=True)
class Fields(Schema):
    """An object with all fields of ``required``, any fields of ``optional``, and no others."""

    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)

    def check(self, value: object, path: str) -> dict[str, Any]:
        items = _dict(value, path)
        for name in self.required:
            if name not in items:
                raise BadMessage(path, f"lacks the field {name}")
        for other in items:
            if other not in self.required and other not in self.optional:
                raise BadMessage(path, f"has the unknown field {_abbreviated(other)}")
        fields = chain(self.required.items(), self.optional.items())
        return {name: item.check(items[name], _below(path, name)) for name, item in fields if name in items}


@dataclass(frozen=True)
class Anything(Schema):
    """Any JSON value. The code that uses it has to check it further."""

    def check(self, value: object, path: str) -> Any:  # noqa: ARG002
        return value


@dataclass(frozen=True)
class OneOf(Schema):
    """An object with exactly one of these fields."""

    fields: Mapping[str, Schema]

    def check(self, value: object, path: str) -> dict[str, Any]:
        items = _dict(value, path)
        if len(items) != 1:
            raise BadMessage(path, f"has {len(items)} fields, not one of {', '.join(self.fields)}")
        return Fields({}, self.fields).check(items, path)


@dataclass(frozen=True)
class Kinds(Schema):
    """An object whose field ``tag`` names the form of its other fields."""

    tag: str
    kinds: Mapping[str, Fields]

    def check(self, value: object, path: str) -> dict[str, Any]:
        items = _dict(value, path)
        if self.tag not in items:
            raise BadMessage(path, f"lacks the field {self.tag}")
        kind = Word(*self.kinds).check(items[self.tag], _below(path, self.tag))
        rest = {name: item for name, item in items.items() if name != self.tag}
        return {self.tag: kind, **self.kinds[kind].check(rest, path)}


def _list(value: object, path: str) -> list[object]:
    if type(value) is not list:
        raise BadMessage(path, f"is {_kind(value)}, not a list")
    return value


def _dict(value: object, path: str) -> dict[object, object]:
    if type(value) is not dict:
        raise BadMessage(path, f"is {_kind(value)}, not an object")
    return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_KINDS = {
    dict: "an object", list: "a list", str: "a text", int: "an integer", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def _abbreviated(value: object) -> str:
    """Return a string or an integer, shortened, for an error message. Return the kind of any other value."""
    if type(value) is int and value.bit_length() > MAX_DIGITS:
        return f"a number of {value.bit_length()} bits"
    if type(value) is str:
        return ascii(value[:_MAX_SHOWN_CHARACTERS])
    return str(value) if type(value) is int else _kind(value)
