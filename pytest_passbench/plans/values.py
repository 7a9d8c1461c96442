"""Constants as JSON: numbers, texts, dtypes, devices, slices and sequences of them.

A tagged form is a JSON object with a single key that names the kind. Everything else stands for itself. Decoding
gives values of these kinds only, whatever data it gets.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
from torch.utils import _pytree as pytree

from pytest_passbench.core.schema import Path, Schema, Text, abbreviated, refusal
from pytest_passbench.core.typed import Data, schema_of

MAX_DEPTH = 16
MAX_ITEMS = 4096
MAX_TEXT_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 200
MAX_INTEGER = 1 << 63  # integers have 64 bits, with a sign

_KINDS = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}
_NAMED: dict[str, tuple[type, dict[str, Any]]] = {
    kind: (of, {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, of)})
    for kind, of in _KINDS.items()
}

Encode = Callable[[Any], Any]
Decode = Callable[[str, Any], Any]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists and dicts, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage_of(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage. Tensors that share one may share memory."""
    return int(tensor.untyped_storage()._cdata)


def encode(value: Any, special: Encode | None = None, depth: int = 0) -> Any:
    """Return the JSON-ready form of a constant.

    ``special`` is called first. It returns a tagged form for the caller's own kinds of values, and None for others.
    Raises Rejected for any other value that has no form, and for values nested more than 16 deep.
    """
    if depth > MAX_DEPTH:
        raise refusal("values nested too deeply")
    form = special(value) if special is not None else None
    if form is not None:
        return form
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    for kind, (of, names) in _NAMED.items():
        if isinstance(value, of):
            return {kind: next(name for name, candidate in names.items() if candidate is value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, slice):
        return {"slice": [encode(end, special, depth + 1) for end in (value.start, value.stop, value.step)]}
    if isinstance(value, (tuple, list)):
        items = [encode(item, special, depth + 1) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, encode(item, special, depth + 1)] for key, item in value.items()]}
    raise refusal(f"a value of type {type(value).__name__}")


def decode(data: Any, special: Decode | None = None, depth: int = 0) -> Any:
    """Return the constant that :func:`encode` wrote. Raises Rejected for any other data.

    ``special`` decodes the caller's own kinds: it gets a tag and its content.
    """
    if depth > MAX_DEPTH:
        raise refusal("values nested too deeply")
    if data is None or isinstance(data, bool):
        return data
    if isinstance(data, int):
        if not -MAX_INTEGER <= data < MAX_INTEGER:
            raise refusal("an integer of more than 64 bits")
        return data
    if isinstance(data, float):
        return data
    if isinstance(data, str):
        return _short(data)
    if isinstance(data, list):
        return [decode(item, special, depth + 1) for item in _few(data)]
    if isinstance(data, dict) and len(data) == 1:
        ((tag, content),) = data.items()
        return _tagged(tag, content, special, depth)
    raise refusal("data that does not encode a value")


def _tagged(tag: str, content: Any, special: Decode | None, depth: int) -> Any:
    if tag in _NAMED:
        return _named(tag, content)
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "complex" and isinstance(content, list) and len(content) == 2:
        return _complex(*content)
    if tag == "device":
        return _device(content)
    if tag == "ellipsis":
        return Ellipsis
    if tag == "slice" and isinstance(content, list) and len(content) == 3:
        return slice(*(decode(end, special, depth + 1) for end in content))
    if tag == "tuple" and isinstance(content, list):
        return tuple(decode(item, special, depth + 1) for item in _few(content))
    if tag == "dict" and isinstance(content, list) and _are_pairs(_few(content)):
        return {_short(key): decode(item, special, depth + 1) for key, item in content}
    if special is None:
        raise refusal(f"a value of unknown kind {str(tag)[:40]!r}")
    return special(tag, content)


class ConstantSchema(Schema):
    """A constant, or a value of one of these tagged dataclasses, on its own or in sequences."""

    def __init__(self, *kinds: type[Data]) -> None:
        self._kinds = {kind.tag: kind for kind in kinds}

    def check(self, value: object, path: Path = None) -> Any:
        def special(tag: str, content: Any) -> Any:
            if tag not in self._kinds:
                raise refusal(f"is a value of unknown kind {tag[:40]!r}", path)
            return schema_of(self._kinds[tag]).check({tag: content}, path)

        return decode(value, special)

    def write(self, value: Any) -> Any:
        return encode(value, lambda item: item.to_data() if type(item) in self._kinds.values() else None)


class _ScalarSchema(ConstantSchema):
    """A boolean, an integer or a float."""

    def check(self, value: object, path: Path = None) -> Any:
        scalar = super().check(value, path)
        if not isinstance(scalar, (bool, int, float)):
            raise refusal("is a fill value that is not a number", path)
        return scalar


class _IdentifierSchema(Schema):
    """An identifier of Python's that is not a keyword."""

    def check(self, value: object, path: Path = None) -> str:
        name = Text(MAX_NAME_CHARACTERS).check(value, path)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise refusal(f"is {abbreviated(name)}, a name that is not an identifier", path)
        return name


Scalar = Annotated[float | int | bool, _ScalarSchema()]
Identifier = Annotated[str, _IdentifierSchema()]


def _named(tag: str, content: Any) -> Any:
    value = _NAMED[tag][1].get(content) if isinstance(content, str) else None
    if value is None:
        raise refusal(f"no such {tag}: {str(content)[:40]!r}")
    return value


def _device(content: Any) -> torch.device:
    try:
        return torch.device(_short(content))
    except (RuntimeError, TypeError) as error:
        raise refusal(f"no such device: {str(content)[:40]!r}") from error


def _are_pairs(items: list[Any]) -> bool:
    return all(isinstance(item, list) and len(item) == 2 for item in items)


def _complex(real: Any, imaginary: Any) -> complex:
    try:
        return complex(float(_short(real)), float(_short(imaginary)))
    except ValueError as error:
        raise refusal("a complex number whose parts are not numbers") from error


def _short(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARACTERS:
        raise refusal(f"something else than a text of at most {MAX_TEXT_CHARACTERS} characters")
    return text


def _few(items: list[Any]) -> list[Any]:
    if len(items) > MAX_ITEMS:
        raise refusal(f"a sequence of more than {MAX_ITEMS} items")
    return items
