"""References to kernels: a reader's claim about the place of a text and the values of outer names, as data.

Of the values, numbers, strings, booleans and None stand for themselves, and a list stands for a tuple. Objects stand
for the rest:

- ``{"float": "inf"}``, and likewise ``"-inf"`` and ``"nan"``;
- ``{"constexpr": value}``;
- ``{"tl": "float32"}``: a member of Triton's language that was imported by itself. Other tags are ``tl.math``,
  ``libdevice``, ``triton`` and ``math``;
- ``{"module": "triton.language"}``;
- ``{"kernel": 0}``: the first of the reference's functions;
- ``{"unsupported": "its type"}``: a value of any other type.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_passbench.candidate.triton.names import MEMBERS, MODULES
from pytest_passbench.core import jsontext
from pytest_passbench.core.rejected import Rejected, plan_refused

MAX_INTEGER = 2**64  # exclusive, of the absolute value
MAX_STRING_CHARACTERS = 100
MAX_ELEMENTS = 64  # of a tuple
MAX_DEPTH = 4  # of nested tuples
MAX_FUNCTIONS = 64
MAX_VALUES = 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_QUALIFIED = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.([A-Za-z_][A-Za-z0-9_]{0,99}|<locals>)){0,10}\Z")


@dataclass(frozen=True)
class Constant:
    """A value that is written into the kernel's text in place of its name, as an expression."""

    expression: ast.expr
    constexpr: bool = False


@dataclass(frozen=True)
class Member:
    """A member of a module that a kernel may use."""

    module: str
    name: str


@dataclass(frozen=True)
class Module:
    """A module, by its full name."""

    name: str


@dataclass(frozen=True)
class Function:
    """Another kernel, by its index among the reference's functions."""

    index: int


@dataclass(frozen=True)
class UnsupportedValue:
    """A value that a kernel cannot use, by the name of its type."""

    kind: str


Value = Constant | Member | Module | Function | UnsupportedValue


def read_value(data: object, functions: int) -> Value:
    """Return the value that JSON data states. Raises ValueError if the data does not fit the schema.

    ``functions`` is the number of the reference's functions.
    """
    if not isinstance(data, dict):
        return Constant(_literal(data, 0))
    [(kind, inner)] = data.items() if len(data) == 1 else [("", None)]
    if kind == "module":
        return Module(_text(inner))
    if kind == "unsupported":
        return UnsupportedValue(_text(inner))
    if kind == "kernel":
        if type(inner) is not int or not 0 <= inner < functions:
            raise ValueError(f"no function number {inner!r:.40}")
        return Function(inner)
    if kind in MEMBERS:
        return Member(MEMBERS[kind], _text(inner))
    if kind == "constexpr":
        return Constant(_literal(inner, 0), constexpr=True)
    return Constant(_literal(data, 0))


def _text(data: object) -> str:
    if not isinstance(data, str) or len(data) > MAX_STRING_CHARACTERS or not data.isascii() or not data.isprintable():
        raise ValueError(f"not a string of at most {MAX_STRING_CHARACTERS} printable ASCII characters")
    return data


def _literal(data: object, depth: int) -> ast.expr:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(data, list):
        if len(data) > MAX_ELEMENTS:
            raise ValueError(f"more than {MAX_ELEMENTS} elements")
        return ast.Tuple([_literal(item, depth + 1) for item in data], ast.Load())
    if isinstance(data, dict) and len(data) == 1:
        [(kind, inner)] = data.items()
        if kind == "constexpr":
            return _literal(inner, depth + 1)
        if kind == "float" and inner in ("inf", "-inf", "nan"):
            return number(float(inner))
        if kind == "tl":
            return member_expression(Member(MEMBERS["tl"], _text(inner)))
    if data is None or isinstance(data, bool):
        return ast.Constant(data)
    if isinstance(data, str):
        return ast.Constant(_text(data))
    if isinstance(data, int) and abs(data) < MAX_INTEGER:
        return number(data)
    if isinstance(data, float) and math.isfinite(data):
        return number(data)
    raise ValueError(f"not a value of the schema: {data!r:.60}")


def number(value: float) -> ast.expr:
    """Return an expression of exactly this number and its type."""
    if isinstance(value, float) and not math.isfinite(value):
        name = ast.Name("float", ast.Load())
        return ast.Call(name, [ast.Constant(str(value))], [])
    positive = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), positive) if math.copysign(1, value) < 0 else positive


def member_expression(member: Member) -> ast.expr:
    """Return the expression of a member in the written text. Raises ValueError if the member is not on the list."""
    prefix, members, _ = MODULES[member.module]
    if member.name not in members:
        raise ValueError(f"{member.module} has no {member.name} on the list of what a kernel may use")
    expression: ast.expr = ast.Name(prefix.split(".")[0], ast.Load())
    for part in (*prefix.split(".")[1:], member.name):
        expression = ast.Attribute(expression, part, ast.Load())
    return expression


@dataclass(frozen=True)
class KernelReference:
    """A reference to a function: its file in the candidate's folder, qualified name, first line, and outer values.

    ``functions`` are the other kernels that it uses, directly or not. ``Function(i)`` in a value is the i-th of them.
    """

    file: str
    name: str
    line: int
    values: Mapping[str, Value]
    functions: tuple[KernelReference, ...] = ()

    @classmethod
    def read(cls, text: str) -> KernelReference:
        """Return the reference in a reader's JSON text ``{"file", "name", "line", "values", "functions"}``.

        Raises Rejected for any other text.
        """
        try:
            return cls.from_json(jsontext.read(text.encode("utf-8", "surrogatepass")))
        except (Rejected, ValueError) as error:
            message = f"names a Triton kernel in an unknown form: {error}"
            raise plan_refused("plan", message) from error

    @classmethod
    def from_json(cls, data: object) -> KernelReference:
        """Return the reference in data of the form that :meth:`read` parses. Raises ValueError for any other data."""
        if not isinstance(data, dict) or set(data) != {"file", "name", "line", "values", "functions"}:
            raise ValueError("a kernel's reference has file, name, line, values and functions")
        listed = data["functions"]
        if not isinstance(listed, list) or len(listed) > MAX_FUNCTIONS:
            raise ValueError(f"functions is not a list of at most {MAX_FUNCTIONS}")
        functions = tuple(_function(item, len(listed)) for item in listed)
        main = _function({key: data[key] for key in ("file", "name", "line", "values")}, len(listed))
        return cls(main.file, main.name, main.line, main.values, functions)


def _function(data: object, functions: int) -> KernelReference:
    if not isinstance(data, dict) or set(data) != {"file", "name", "line", "values"}:
        raise ValueError("a function's reference has file, name, line and values")
    file, name, line, values = data["file"], data["name"], data["line"], data["values"]
    if not isinstance(file, str) or not _is_relative(file):
        raise ValueError("a kernel's file is not a path inside the candidate's folder")
    if not isinstance(name, str) or not _QUALIFIED.match(name):
        raise ValueError("a kernel's name is not that of a function")
    if type(line) is not int or not 1 <= line < 1 << 24:
        raise ValueError("a kernel's line is not a line number")
    if not isinstance(values, dict) or len(values) > MAX_VALUES:
        raise ValueError(f"a kernel's values are not at most {MAX_VALUES} names")
    if not all(isinstance(key, str) and _NAME.match(key) for key in values):
        raise ValueError("a kernel's values are not named by identifiers")
    return KernelReference(file, name, line, {key: read_value(item, functions) for key, item in values.items()})


def _is_relative(file: str) -> bool:
    path = PurePosixPath(file)
    plain = 0 < len(file) <= 1000 and file.isprintable() and not path.is_absolute()
    return plain and ".." not in path.parts and path.suffix == ".py"
