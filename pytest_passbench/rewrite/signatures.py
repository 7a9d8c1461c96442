"""Signatures of operators: from ATen's schemas, and from Python if there is no schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.rewrite import names

Signature = inspect.Signature


def plain(value: Any) -> Any:
    """Return FX's immutable lists, tuples, sizes and slices as plain tuples and slices, recursively."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def signatures(name: str, target: Any) -> Iterator[Signature]:
    """Yield the signatures that a call of this operator may have: those of its overloads, then Python's."""
    yield from _schema_signatures(name)
    python_signature = _python_signature(target) if callable(target) else None
    if python_signature is not None:
        yield python_signature


@cache
def _schema_signatures(name: str) -> tuple[Signature, ...]:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads() if "out" not in overload]
    tensors = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    signatures = (_from_schema(schema) for schema in tensors or schemas)
    return tuple(s for s in signatures if s is not None)


@cache
def overload_signature(target: Any) -> Signature | None:
    """Return the signature of an ATen overload, or None if it cannot be a signature of Python's."""
    return _from_schema(target._schema)


def _from_schema(schema: Any) -> Signature | None:
    kinds = inspect.Parameter
    parameters = [
        kinds(
            a.name + "_" if a.name in ("from", "is", "in") else a.name,  # Python's keywords cannot be parameters
            kinds.KEYWORD_ONLY if a.kwarg_only else kinds.POSITIONAL_OR_KEYWORD,
            default=a.default_value if a.has_default_value() else kinds.empty,
            annotation=str(a.real_type),
        )
        for a in schema.arguments
    ]
    try:
        return Signature(parameters)
    except ValueError:
        return None


@cache
def _python_signature(target: Callable[..., Any]) -> Signature | None:
    dispatched = torch._jit_internal.boolean_dispatched.get(target)
    try:
        return inspect.signature(dispatched["if_false"] if dispatched else target)
    except (TypeError, ValueError):
        return None


def bind(signature: Signature, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name with defaults, or None if the call does not fit the signature."""
    args, kwargs = _gather(signature, args), _aliased(signature, kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    arguments = dict(bound.arguments)
    for name, value in arguments.items():
        annotation = signature.parameters[name].annotation
        if isinstance(annotation, str) and not _fits(annotation, value):
            return None
    bound.apply_defaults()
    return {name: _widen(signature, name, value) for name, value in bound.arguments.items()}


def _aliased(signature: Signature, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under the names that the signature uses (axis for dim, input for self)."""
    result = {}
    for name, value in kwargs.items():
        if name not in signature.parameters:
            parameters = [p for p in signature.parameters if names.RENAMED.get(p, p) == names.RENAMED.get(name, name)]
            name = parameters[0] if parameters else name
        result[name] = value
    return result


def _gather(signature: Signature, args: list[Any]) -> list[Any]:
    """Return ``x.view(2, 3)`` as ``x.view((2, 3))``: trailing integers become the list that the signature ends with.

    Like torch, it leaves a call alone whose list is not the last positional parameter.
    """
    positional = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    first = len(positional) - 1
    listed = bool(positional) and _is_list(positional[first].annotation)
    if listed and len(args) > len(positional) and all(_is_size(value) for value in args[first:]):
        return [*args[:first], tuple(args[first:])]
    return args


def _is_list(annotation: Any) -> bool:
    return isinstance(annotation, str) and "List[" in annotation


def _is_size(value: Any) -> bool:
    return isinstance(value, Node) or (isinstance(value, int) and not isinstance(value, bool))


def _widen(signature: Signature, name: str, value: Any) -> Any:
    """Return a lone integer as a tuple of one, as for ``expand(4)``. One for all axes stays, as for ``stride=2``."""
    annotation = signature.parameters[name].annotation
    listed = _is_list(annotation) and "Tensor" not in annotation and name not in names.WIDENED
    if listed and isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return plain(value)


def _fits(annotation: str, value: Any) -> bool:
    """Return True if a literal fits a schema type such as ``Optional[List[int]]``. A node fits all types."""
    if isinstance(value, Node):
        return True
    if value is None:
        return annotation.startswith("Optional[")
    inner = annotation.removeprefix("Optional[")
    if isinstance(value, tuple):
        return inner.startswith("List[") and all(_fits(inner[5:], item) for item in value)
    for kind, prefixes in _LITERAL_TYPES:
        if isinstance(value, kind):
            return inner.removeprefix("List[").startswith(prefixes)
    return True


_LITERAL_TYPES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (bool, ("bool", "number", "Scalar]", "int")),
    (int, ("int", "number", "float", "SymInt", "complex", "Tensor")),
    (float, ("float", "number", "complex", "Tensor")),
    (str, ("str", "Device", "Dimname")),
    (torch.dtype, ("ScalarType",)),
    (torch.device, ("Device",)),
    (torch.memory_format, ("MemoryFormat",)),
)
