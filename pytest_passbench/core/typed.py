"""Dataclasses as JSON: the schema of a dataclass follows from its annotations, for reading and for writing.

``Annotated[int, Whole(0, 9)]`` and ``Annotated[tuple[int, ...], Most(4)]`` limit a field. A field without a limit
takes any value of its type.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from pytest_passbench.core.schema import (
    Anything,
    Flag,
    Items,
    Number,
    OneOf,
    Path,
    Row,
    Schema,
    Text,
    Whole,
    Word,
    abbreviated,
    of_type,
    refusal,
)

_PLAIN: dict[Any, Schema] = {
    str: Text(sys.maxsize), bool: Flag(), float: Number(), int: Whole(-sys.maxsize, sys.maxsize), Any: Anything(),
}  # fmt: skip


@dataclass(frozen=True)
class Most:
    """The limits of a sequence's length, as an annotation."""

    most: int
    least: int = 0


class Data:
    """A base of dataclasses that are written as JSON-ready data, and read from untrusted data.

    The data is an object of the fields. With ``row`` it is a list of the fields in order. A row of one field is that
    field alone, and a row within a row is put into the outer list. With ``tag`` the data is an object with this one
    key, and the row below it. With ``partial``, fields that have a default may be missing, and fields that the class
    does not know are ignored.
    """

    __slots__ = ()
    _row: ClassVar[bool] = False
    tag: ClassVar[str] = ""
    _partial: ClassVar[bool] = False

    def __init_subclass__(cls, *, row: bool = False, tag: str = "", partial: bool = False) -> None:
        if row or tag or partial:  # dataclass(slots=True) makes the class a second time, without these
            cls._row, cls.tag, cls._partial = row or bool(tag), tag, partial

    def to_data(self) -> Any:
        """Return this value as JSON-ready data."""
        return schema_of(type(self)).write(self)

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Return what :meth:`to_data` wrote. Raises Rejected for any other data."""
        value: Self = schema_of(cls).check(data)
        return value


def schema_of(kind: Any) -> Schema:
    """Return the schema of a type: of a dataclass, of a container, or of a plain value."""
    return _schema_of(kind)


@cache
def _schema_of(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, Data):
        if kind.tag:
            return _UnionSchema({kind.tag: _RowSchema(kind)})
        return _RowSchema(kind) if kind._row else _ObjectSchema(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, limit = arguments
        return limit if isinstance(limit, Schema) else _items(base, limit)
    if origin is Literal:
        return Word(*arguments)
    if origin in (Union, UnionType):
        return _union([argument for argument in arguments if argument is not NoneType], NoneType in arguments)
    if origin is dict:
        return _MapSchema(schema_of(arguments[1]))
    return _items(kind, Most(sys.maxsize))


def _union(kinds: list[Any], optional: bool) -> Schema:
    if len(kinds) == 1:
        schema = schema_of(kinds[0])
    elif all(isinstance(kind, type) and issubclass(kind, Data) for kind in kinds):
        schema = _UnionSchema({kind.tag: _RowSchema(kind) for kind in kinds})
    else:
        schema = Anything()
    return _OptionalSchema(schema) if optional else schema


def _items(kind: Any, limit: Most) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return Row(*map(schema_of, arguments), kind=tuple)
    return Items(schema_of(arguments[0]), limit.most, limit.least, tuple if origin is tuple else list)


class _OptionalSchema(Schema):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def check(self, value: object, path: Path = None) -> Any:
        return None if value is None else self._schema.check(value, path)

    def write(self, value: Any) -> Any:
        return None if value is None else self._schema.write(value)


class _MapSchema(Schema):
    """An object with any keys."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def check(self, value: object, path: Path = None) -> dict[str, Any]:
        return {name: self._schema.check(item, (path, name)) for name, item in of_type(value, dict, path).items()}

    def write(self, value: Any) -> dict[str, Any]:
        return {name: self._schema.write(item) for name, item in value.items()}


class _ClassSchema(Schema):
    """The schema of a dataclass. Those of its fields are made when they are used first, since classes may nest."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @cached_property
    def _schemas(self) -> dict[str, Schema]:
        hints = get_type_hints(self._kind, include_extras=True)
        return {field.name: schema_of(hints[field.name]) for field in fields(self._kind)}


class _ObjectSchema(_ClassSchema):
    @cached_property
    def _required(self) -> list[str]:
        bare = [f.name for f in fields(self._kind) if f.default is MISSING and f.default_factory is MISSING]
        return bare if self._kind._partial else list(self._schemas)

    def check(self, value: object, path: Path = None) -> Any:
        items, schemas = of_type(value, dict, path), self._schemas
        for name in self._required:
            if name not in items:
                raise refusal(f"lacks the field {name}", path)
        if len(items) > len(self._required) and not self._kind._partial:
            unknown = next(name for name in items if name not in schemas)
            raise refusal(f"has the unknown field {abbreviated(unknown)}", path)
        return self._kind(**{n: schemas[n].check(item, (path, n)) for n, item in items.items() if n in schemas})

    def write(self, value: Any) -> dict[str, Any]:
        return {name: schema.write(getattr(value, name)) for name, schema in self._schemas.items()}


class _RowSchema(_ClassSchema):
    @cached_property
    def _columns(self) -> list[tuple[str, Schema, int]]:
        """The name and the schema of each field, and the number of items that it takes in the list."""
        return [
            (n, schema, schema.width if isinstance(schema, _RowSchema) else 1) for n, schema in self._schemas.items()
        ]

    @cached_property
    def width(self) -> int:
        """The number of items in the list."""
        return sum(width for _name, _schema, width in self._columns)

    def check(self, value: object, path: Path = None) -> Any:
        if self.width == 1:
            return self._kind(*[self._columns[0][1].check(value, path)])
        items = of_type(value, list, path)
        if len(items) != self.width:
            raise refusal(f"has {len(items)} items, not {self.width}", path)
        values, at = [], 0
        for _name, schema, width in self._columns:
            if width == 1:
                values.append(schema.check(items[at], (path, at)))
            else:
                values.append(schema.check(items[at : at + width], path))
            at += width
        return self._kind(*values)

    def write(self, value: Any) -> Any:
        if self.width == 1:
            name, schema, _width = self._columns[0]
            return schema.write(getattr(value, name))
        data: list[Any] = []
        for name, schema, width in self._columns:
            part = schema.write(getattr(value, name))
            data += part if width > 1 else (part,)
        return data


class _UnionSchema(OneOf):
    """An object whose one key is the tag of a class, with the row of that class below it."""

    def check(self, value: object, path: Path = None) -> Any:
        (content,) = super().check(value, path).values()
        return content

    def write(self, value: Any) -> dict[str, Any]:
        return {value.tag: self.fields[value.tag].write(value)}
