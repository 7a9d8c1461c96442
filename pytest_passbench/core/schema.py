"""The one notation for the form of untrusted data: messages, launch plans, records.

A schema is a value: ``Fields({"name": Text(80), "sizes": Items(Whole(0, 99), most=8)})``. Its ``check`` returns a
copy that has the schema's form and nothing else. :func:`read` does the same from the bytes of a JSON text. Neither
raises anything but :class:`Rejected`, whatever it is given. :mod:`~pytest_passbench.core.typed` makes schemas of
dataclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from pytest_passbench.core import jsontext
from pytest_passbench.core.rejected import Rejected

MAX_BYTES = 1 << 22
MAX_DEPTH = 32  # of nested lists and objects
ADDRESS_END = 1 << 64
_MAX_SHOWN_CHARACTERS = 40  # of a name or a value in an error message
_MAX_SHOWN_BITS = 64

Json = TypeVar("Json", bound="dict[str, Any] | list[Any] | str | int | bool")

#: The place of a value: that of the list or object around it, and its index or name in it. None is the whole data.
Path = tuple["Path", int | str] | None


class Schema(ABC):
    """A form that a value may have."""

    @abstractmethod
    def check(self, value: object, path: Path = None) -> Any:
        """Return the value that JSON data stands for. ``path`` is its place. Raises Rejected for another form."""

    def write(self, value: Any) -> Any:
        """Return the JSON-ready data of a value that :meth:`check` returned, or could have."""
        return value


def read(schema: Schema, data: bytes, max_bytes: int = MAX_BYTES) -> Any:
    """Return the content of the JSON text ``data``, in the form of ``schema``. Raises Rejected.

    A text of more than ``max_bytes`` bytes is refused unread, and so is one that nests more than 32 deep.
    """
    if len(data) > max_bytes:
        raise refusal(f"has {len(data)} bytes, more than {max_bytes}")
    return schema.check(jsontext.read(data, MAX_DEPTH))


def refusal(what: str, path: Path = None) -> Rejected:
    """Return the refusal of the part of data at ``path``. ``what`` says what is wrong with it."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    place = "".join(reversed(steps)).removeprefix(".")
    return Rejected("data", "form", f"{place}: {what}" if place else what)


@dataclass(frozen=True)
class Text(Schema):
    """A string of up to ``most`` characters. Lone surrogates are escaped, since no UTF-8 file can hold them."""

    most: int

    def check(self, value: object, path: Path = None) -> str:
        text = of_type(value, str, path)
        if len(text) > self.most:
            raise refusal(f"has {len(text)} characters, more than {self.most}", path)
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Word(Schema):
    """A string from a short list."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, value: object, path: Path = None) -> str:
        if type(value) is not str or value not in self.words:
            raise refusal(f"is {abbreviated(value)}, not one of {', '.join(self.words)}", path)
        return value


@dataclass(frozen=True)
class Whole(Schema):
    """An integer from ``least`` to ``most``, both included."""

    least: int
    most: int

    def check(self, value: object, path: Path = None) -> int:
        number = of_type(value, int, path)
        if not self.least <= number <= self.most:
            raise refusal(f"is {abbreviated(number)}, not in {self.least} to {self.most}", path)
        return number


class Number(Schema):
    """An integer, or a float of any value."""

    def check(self, value: object, path: Path = None) -> float:
        if type(value) is not float and type(value) is not int:
            raise refusal(f"is {_kind(value)}, not a number", path)
        return value


class Share(Schema):
    """A number from 0 to 1, both included."""

    def check(self, value: object, path: Path = None) -> float:
        number = Number().check(value, path)
        if not 0 <= number <= 1:
            raise refusal(f"is {abbreviated(value)}, not in 0 to 1", path)
        return float(number)


#: An address, or 0 for none.
ADDRESS = Whole(0, ADDRESS_END - 1)


class Flag(Schema):
    """A truth value."""

    def check(self, value: object, path: Path = None) -> bool:
        return of_type(value, bool, path)


@dataclass(frozen=True)
class Items(Schema):
    """A list of ``least`` to ``most`` values of one form, as a list or a tuple (``kind``)."""

    item: Schema
    most: int
    least: int = 0
    kind: type[list[Any] | tuple[Any, ...]] = list

    def check(self, value: object, path: Path = None) -> Any:
        items = of_type(value, list, path)
        if not self.least <= len(items) <= self.most:
            raise refusal(f"has {len(items)} items, not {self.least} to {self.most}", path)
        check = self.item.check
        values = [check(item, (path, index)) for index, item in enumerate(items)]
        return values if self.kind is list else self.kind(values)

    def write(self, value: Any) -> list[Any]:
        return list(value) if self._plain else [self.item.write(item) for item in value]

    @cached_property
    def _plain(self) -> bool:
        """True if items are written as they are."""
        return type(self.item).write is Schema.write


class Row(Schema):
    """A list of values of these forms, in this order, as a list or a tuple (``kind``)."""

    def __init__(self, *columns: Schema, kind: type[list[Any] | tuple[Any, ...]] = list) -> None:
        self.columns, self.kind = columns, kind

    def check(self, value: object, path: Path = None) -> Any:
        items = of_type(value, list, path)
        if len(items) != len(self.columns):
            raise refusal(f"has {len(items)} items, not {len(self.columns)}", path)
        pairs = zip(self.columns, items, strict=True)
        return self.kind(column.check(item, (path, index)) for index, (column, item) in enumerate(pairs))

    def write(self, value: Any) -> list[Any]:
        return [column.write(item) for column, item in zip(self.columns, value, strict=True)]


@dataclass(frozen=True)
class Fields(Schema):
    """An object with all fields of ``required``, any fields of ``optional``, and no others."""

    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)

    def check(self, value: object, path: Path = None) -> dict[str, Any]:
        items = of_type(value, dict, path)
        for name in self.required:
            if name not in items:
                raise refusal(f"lacks the field {name}", path)
        for other in items:
            if other not in self.required and other not in self.optional:
                raise refusal(f"has the unknown field {abbreviated(other)}", path)
        fields = chain(self.required.items(), self.optional.items())
        return {name: item.check(items[name], (path, name)) for name, item in fields if name in items}


class Anything(Schema):
    """Any JSON value. The code that uses it has to check it further."""

    def check(self, value: object, path: Path = None) -> Any:  # noqa: ARG002
        return value


@dataclass(frozen=True)
class OneOf(Schema):
    """An object with exactly one of these fields."""

    fields: Mapping[str, Schema]

    def check(self, value: object, path: Path = None) -> dict[str, Any]:
        items = of_type(value, dict, path)
        if len(items) != 1:
            raise refusal(f"has {len(items)} fields, not one of {', '.join(self.fields)}", path)
        ((name, content),) = items.items()
        if name not in self.fields:
            raise refusal(f"is of unknown kind {abbreviated(name)}, not one of {', '.join(self.fields)}", path)
        return {name: self.fields[name].check(content, (path, name))}


@dataclass(frozen=True)
class Kinds(Schema):
    """An object whose field ``tag`` names the form of its other fields."""

    tag: str
    kinds: Mapping[str, Fields]

    def check(self, value: object, path: Path = None) -> dict[str, Any]:
        items = of_type(value, dict, path)
        if self.tag not in items:
            raise refusal(f"lacks the field {self.tag}", path)
        kind = Word(*self.kinds).check(items[self.tag], (path, self.tag))
        rest = {name: item for name, item in items.items() if name != self.tag}
        return {self.tag: kind, **self.kinds[kind].check(rest, path)}


def of_type(value: object, kind: type[Json], path: Path) -> Json:
    """Return a value of exactly this type. Raises Rejected for any other value."""
    if type(value) is not kind:
        raise refusal(f"is {_kind(value)}, not {_KINDS[kind]}", path)
    return value


_KINDS = {
    dict: "an object", list: "a list", str: "a text", int: "an integer", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def abbreviated(value: object) -> str:
    """Return a string or an integer, shortened, for an error message. Return the kind of any other value."""
    if type(value) is int and value.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    if type(value) is str:
        return ascii(value[:_MAX_SHOWN_CHARACTERS])
    return str(value) if type(value) is int else _kind(value)
