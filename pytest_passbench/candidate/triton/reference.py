"""References to kernels: a reader's claim about the place of a text and the values of outer names, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_passbench.candidate.triton.values import Value, read_value
from pytest_passbench.core import jsontext
from pytest_passbench.core.rejected import Rejected, plan_refused

MAX_FUNCTIONS = 64
MAX_VALUES = 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_QUALIFIED = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.([A-Za-z_][A-Za-z0-9_]{0,99}|<locals>)){0,10}\Z")


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
        """Return the reference in data of that form. Raises ValueError for any other data."""
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
